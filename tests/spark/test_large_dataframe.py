"""Rows of `to_dataframe` stay away from the driver: far more of them than Spark would let it collect."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.bench.rows import keyed_rows
from tests.spark_session import SETTINGS

pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("master", ["local[2]"], indirect=True)]

ROWS = 7_000_000
ROW_BYTES = 24


def test_ten_times_what_the_driver_may_collect_becomes_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    assert SETTINGS["spark.driver.maxResultSize"] == "16m" and ROWS * ROW_BYTES > 10 * (16 << 20)
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(spill_dir=str(tmp_path)))
    dataframe = env.from_source(hg.sources.generate(keyed_rows, rows=ROWS, time="at")).to_dataframe()
    assert dataframe.count() == ROWS
    assert dataframe.limit(5).count() == 5
    assert dataframe.selectExpr("count(distinct key)").first()[0] == 1000
