"""Read the rows of a Spark DataFrame, and return the result as another DataFrame."""

import tempfile

from pyspark.sql import DataFrame, SparkSession

import headgate as hg

spark = (
    SparkSession.builder.master("local[3]")  # any session works, also one without these settings
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
trips = spark.createDataFrame([("Rome", 7), ("Oslo", 3), ("Rome", 5)], "city string, km int")

# This deployment is the default with a session; hg.LocalDeployment() would run the job on this machine alone.
env = hg.StreamEnvironment(spark, parallelism=2, deployment=hg.SparkDeployment(spark))
totals = env.from_source(hg.sources.dataframe(trips)).key_by("city").aggregate(final=True, km=hg.sum("km"))
far = totals.to_dataframe()  # the job runs now; Spark may read its result any number of times
print(far.where("km > 5").collect())


def keep(rows: DataFrame, checkpoint_id: int) -> None:
    """Write the rows of a checkpoint, or replace them. This Spark job needs a slot beside the two of the tasks."""
    rows.write.mode("overwrite").parquet(f"{table}/checkpoint={checkpoint_id}")


table = tempfile.mkdtemp()
totals.sink_to(hg.sinks.foreach_dataframe(keep))  # with checkpoints: called with the new rows of each
env.execute("keep")
print(spark.read.parquet(table).select("km", "checkpoint").orderBy("km").collect())
spark.stop()
