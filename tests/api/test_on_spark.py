"""An environment on Spark: DataFrames go in as lookup tables and come out as results."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.spark.session import build_session

pytestmark = pytest.mark.timeout(180)

FLIGHTS = pa.record_batch({"tailnum": ["N1", "N2", None, "N1"], "delay": [5, None, 7, 9]})


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = build_session("local[2]", "headgate tests")
    yield session
    session.stop()


@pytest.fixture
def flights(spark: SparkSession) -> hg.DataStream:
    return hg.StreamEnvironment(spark, parallelism=2).from_source(hg.sources.iterable([FLIGHTS, FLIGHTS]))


def test_a_dataframe_is_looked_up(spark, flights):
    planes = spark.createDataFrame([("N1", 55), ("N2", 180)], "tailnum string, seats int")
    seats = flights.lookup(planes, on="tailnum", how="inner").key_by().aggregate(final=True, seats=hg.sum("seats"))
    assert seats.collect()["seats"].to_pylist() == [2 * (55 + 180 + 55)]


def test_a_stream_becomes_a_dataframe(flights):
    dataframe = flights.filter("delay > 5").to_dataframe()
    assert dataframe.dtypes == [("tailnum", "string"), ("delay", "bigint")]
    assert sorted(dataframe.collect(), key=lambda row: row.delay) == [(None, 7), (None, 7), ("N1", 9), ("N1", 9)]
    assert dataframe.limit(1).count() == 1


def test_a_dataframe_without_rows(flights):
    assert flights.filter("delay > 100").to_dataframe().count() == 0


def test_no_more_slots_than_spark_has(spark):
    env = hg.StreamEnvironment(spark, parallelism=3, config=hg.Config(slots_timeout="100 ms"))
    with pytest.raises(hg.NotEnoughSlots):
        env.from_source(hg.sources.iterable([FLIGHTS])).collect()
