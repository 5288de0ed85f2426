"""Rows of `to_dataframe` stay away from the driver: far more of them than Spark would let it collect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.bench.rows import keyed_rows
from headgate.spark.session import build_session

pytestmark = pytest.mark.timeout(240)

ROWS = 45_000_000
ROW_BYTES = 24


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    session = build_session("local[2]", "large", **{"spark.driver.maxResultSize": "16m"})
    yield session
    session.stop()


def test_a_gigabyte_becomes_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    assert ROWS * ROW_BYTES > 1_000_000_000
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(spill_dir=str(tmp_path)))
    dataframe = env.from_source(hg.sources.generate(keyed_rows, rows=ROWS, time="at")).to_dataframe()
    assert dataframe.count() == ROWS
    assert dataframe.limit(5).count() == 5
    assert dataframe.selectExpr("count(distinct key)").first()[0] == 1000
