"""Rows of `to_dataframe` do not pass through the driver: it gets more rows than Spark could collect there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.bench.keyed_rows import keyed_rows
from tests.spark_session import SETTINGS

#: The bytes of a row: key, value and time.
ROW_BYTES = 24
MB = 1 << 20
#: How much each of the driver's two processes may grow while 1 GiB of rows is written, bytes.
DRIVER_GROWTH = 256 * MB


@pytest.mark.timeout(300)
@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_ten_times_what_the_driver_may_collect_becomes_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    becomes_a_dataframe(spark, tmp_path, 10 * 16 * MB // ROW_BYTES + 1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]"], indirect=True)
def test_a_gigabyte_becomes_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """With executors in processes of their own, so that the driver's memory is its own."""
    before, began = peak_memory(spark), time.monotonic()
    becomes_a_dataframe(spark, tmp_path, 1024 * MB // ROW_BYTES + 1)
    after, seconds = peak_memory(spark), time.monotonic() - began
    for process, peak in after.items():
        print(
            f"1 GiB in {seconds:.0f} s: the driver's {process} held {peak // MB} MiB, {before[process] // MB} at first"
        )
        assert peak - before[process] < DRIVER_GROWTH


def becomes_a_dataframe(spark: SparkSession, folder: Path, rows: int) -> None:
    assert SETTINGS["spark.driver.maxResultSize"] == "16m"
    assert rows * ROW_BYTES > 10 * 16 * MB
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(spill_dir=str(folder)))
    dataframe = env.from_source(hg.sources.generate(keyed_rows, rows=rows, time="at")).to_dataframe()
    assert dataframe.count() == rows
    assert dataframe.limit(5).count() == 5
    assert dataframe.selectExpr("count(distinct key)").first()[0] == 1000


def peak_memory(spark: SparkSession) -> dict[str, int]:
    """Return the peak of resident bytes, of this process and of its JVM."""
    return {"Python": _peak("self"), "JVM": _peak(str(spark.sparkContext._gateway.proc.pid))}


def _peak(process: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
