"""A Spark DataFrame as a source: Spark writes its rows to files, and the job's tasks read them from there."""

import headgate as hg
from headgate.spark.session import build_session

spark = build_session("local[2]", "example")
trips = spark.createDataFrame([("Rome", 7), ("Oslo", 3), ("Rome", 5)], "city string, km int")

env = hg.StreamEnvironment(spark, parallelism=2)
totals = env.from_source(hg.sources.dataframe(trips)).key_by("city").aggregate(final=True, km=hg.sum("km")).collect()
print(totals.sort_by("city").to_pylist())
spark.stop()
