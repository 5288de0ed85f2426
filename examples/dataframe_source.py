"""Spark's DataFrames on both sides: rows of one come in from files that Spark writes, and the result is another."""

from pyspark.sql import SparkSession

import headgate as hg

spark = (
    SparkSession.builder.master("local[2]")  # any session will do, also one without settings of its own
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
spark.stop()
