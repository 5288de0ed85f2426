"""Sessions that are stopped or lost, and functions that would need a session in a task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.spark.session import build_session
from tests.spark.conftest import run_script
from tests.spark_session import SharedSpark

pytestmark = pytest.mark.timeout(300)

#: It prints the errors of a job whose session is lost, and those of an environment with the lost session.
LOST = """
import os, signal, time
import pyarrow as pa
import headgate as hg
from headgate.runtime.master import attempt
from headgate.spark.session import build_session

attempt.EXIT_WORD = 10.0  # on a busy machine Spark says late what it knows
numbers = lambda start, n: pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})

def lose(master, how, **options):
    spark = build_session(master, "lost")
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(slots_timeout="90 s", **options))
    rows = env.from_source(hg.sources.generate(numbers, rate=1000))
    rows.key_by("n").aggregate(count=hg.count()).sink_to(hg.sinks.null())
    job = env.execute_async()
    while not job.metrics()["rows_in"] and job.status() in ("CREATED", "RUNNING"):
        time.sleep(0.02)
    how(spark)
    try:
        job.wait(60)
    except hg.HeadgateError as error:
        print(type(error).__name__, str(error).splitlines()[0], flush=True)
    try:
        hg.StreamEnvironment(spark)
    except hg.ConfigError as error:
        print(type(error).__name__, error, flush=True)

def kill(spark):
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)

def stop(spark):
    spark.stop()

"""


def test_a_session_that_is_stopped_or_killed_ends_the_job(tmp_path: Path) -> None:
    done = run_script(tmp_path, LOST + "lose('local[2]', stop)\nlose('local[2]', kill)")
    job, session, killed_job, killed_session = done.stdout.splitlines()
    assert re.fullmatch(r"TaskManagerLost .*; Spark local\[2\] says: the session was stopped while the job ran", job), (
        job
    )
    assert session == "SessionLost this Spark session has been stopped; build a new one"
    killed = r"TaskManagerLost .*; Spark local\[2\] says: Spark's JVM, which runs .* was killed, .*"
    assert re.fullmatch(killed, killed_job), killed_job
    assert re.fullmatch("SessionLost Spark's JVM, .* start the program again", killed_session)
    assert list(tmp_path.glob("headgate-spark-*")) == []


def test_a_jvm_that_is_killed_ends_the_job(tmp_path: Path) -> None:
    done = run_script(tmp_path, LOST + "lose('local-cluster[1,2,1024]', kill, checkpoint_dir='checkpoints')")
    job, session = done.stdout.splitlines()
    assert re.fullmatch("SessionLost Spark's JVM, which runs .*", job), done.stdout
    assert re.fullmatch("SessionLost Spark's JVM, .* start the program again", session)
    assert list(tmp_path.glob("headgate-spark-*")) == []


def test_a_session_that_was_stopped_is_refused_at_once(shared_spark: SharedSpark) -> None:
    shared_spark.stop()
    spark = build_session("local[1]", "stopped")
    env = hg.StreamEnvironment(spark)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": [1]})]))
    spark.stop()
    for use in (rows.collect, lambda: hg.StreamEnvironment(spark)):
        with pytest.raises(hg.ConfigError, match="this Spark session has been stopped; build a new one"):
            use()


@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_a_function_that_uses_what_only_the_driver_has_is_named(spark: SparkSession) -> None:
    frame = spark.range(3)

    def error(function: Any) -> str:
        env = hg.StreamEnvironment(spark)
        rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": [1]})]))
        with pytest.raises(hg.PlanError) as caught:
            rows.map_batches(function, schema=rows.schema).collect()
        return str(caught.value)

    said = error(lambda batch: frame.count() and batch)
    assert re.match(r"map_batches: its function uses a DataFrame of Spark's, which exists only in the driver", said)
    assert said.endswith(
        "join it with lookup(), read it with hg.sources.dataframe(), or collect what the function needs"
    )
    for held, kind in ((spark, "SparkSession"), (spark.sparkContext, "SparkContext")):
        said = error(lambda batch, held=held: held and batch)
        assert said.startswith(f"map_batches: its function uses a {kind} of Spark's, which exists only"), said
        assert said.endswith("use it in the program, and have the function hold only the result")
