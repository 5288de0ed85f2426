"""Spark's DataFrames on both sides: rows of one come in from files that Spark writes, and the result is another."""

import tempfile

from pyspark.sql import DataFrame, SparkSession

import headgate as hg

spark = (
    SparkSession.builder.master("local[3]")  # any session will do, also one without settings of its own
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
trips = spark.createDataFrame([("Rome", 7), ("Oslo", 3), ("Rome", 5)], "city string, km int")

# The deployment is what a session brings along by itself; hg.LocalDeployment() would keep the job out of the cluster.
env = hg.StreamEnvironment(spark, parallelism=2, deployment=hg.SparkDeployment(spark))
totals = env.from_source(hg.sources.dataframe(trips)).key_by("city").aggregate(final=True, km=hg.sum("km"))
far = totals.to_dataframe()  # the job runs now; Spark then reads its result as often as it likes
print(far.where("km > 5").collect())


def keep(rows: DataFrame, checkpoint_id: int) -> None:
    """By a Spark job of its own: it needs a slot beside the two of the tasks. One with the same number is replaced."""
    rows.write.mode("overwrite").parquet(f"{table}/checkpoint={checkpoint_id}")


table = tempfile.mkdtemp()
totals.sink_to(hg.sinks.foreach_dataframe(keep))  # with checkpoints: each time what is new
env.execute("keep")
print(spark.read.parquet(table).select("km", "checkpoint").orderBy("km").collect())
spark.stop()
