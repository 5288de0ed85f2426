"""Spark Connect itself: what works in such a session, and that Headgate refuses it. It needs packages of its own:
`scripts/compat check connect`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import run_script

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None,
        reason="pyspark[connect] is not installed; scripts/compat check connect installs it",
    ),
]

SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert type(spark).__module__ == "pyspark.sql.connect.session"
"""


def run(folder: Path, script: str) -> str:
    """Run a program in a session. SPARK_TESTING lets the server listen on any free port."""
    environment = {"SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    done = run_script(folder, SESSION + script + "\nspark.stop()\n", **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_connect_session_is_refused(tmp_path: Path) -> None:
    said = run(tmp_path, """
import headgate as hg
for make in (lambda: hg.StreamEnvironment(spark), lambda: hg.StreamEnvironment(spark, parallelism=2),
             lambda: hg.StreamEnvironment().from_source(spark.range(3))):
    try:
        make()
        print("accepted")
    except hg.HeadgateError as error:
        print(f"{type(error).__name__}: {error}")
print(spark.range(3).count())
""")  # fmt: skip
    *refused, given, count = said.splitlines()
    assert len(refused) == 2
    for line in refused:
        assert line.startswith(
            "ConfigError: a Spark Connect session cannot run jobs: TaskManagers must connect to this"
        )
        assert "Use a classic session" in line
    assert "for a Spark DataFrame write from_source(hg.sources.dataframe(df))" in given
    assert count == "3", "the session is as it was"


def test_a_barrier_job_runs_in_a_connect_session(tmp_path: Path) -> None:
    """The page on compatibility says so: this part would work."""
    said = run(tmp_path, """
rows = spark.range(10).repartition(2).mapInArrow(lambda batches: batches, "id long", barrier=True)
print(sorted(row.id for row in rows.collect()))
""")  # fmt: skip
    assert said == f"{list(range(10))}\n"


def test_interrupt_tag_cancels_a_barrier_job_in_a_connect_session(tmp_path: Path) -> None:
    said = run(tmp_path, """
import pathlib, threading, time
runs = pathlib.Path("runs").absolute()

def endless(batches):
    runs.touch()
    while True:
        time.sleep(0.1)
        yield from batches

def collect():
    spark.addTag("endless")
    try:
        spark.range(10).repartition(2).mapInArrow(endless, "id long", barrier=True).collect()
        print("ended")
    except Exception as error:
        print("cancelled" if "OPERATION_CANCELED" in str(error) else error)

thread = threading.Thread(target=collect)
thread.start()
while thread.is_alive():
    if runs.exists():
        spark.interruptTag("endless")
    thread.join(0.1)
""")  # fmt: skip
    assert said == "cancelled\n"
