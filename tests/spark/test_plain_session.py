"""A session that the user built without any settings: jobs run there, and its terminal stays readable."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import run_script

pytestmark = pytest.mark.timeout(300)

#: A program whose session has no settings. A line before each scene marks it on both streams.
PLAIN = """
import os, signal, sys, time
import pyarrow as pa
from pyspark.sql import SparkSession
import headgate as hg
from headgate.spark.quiet import Terminal

def scene(name):
    for stream in (sys.stdout, sys.stderr):
        print(f"--- {name}", file=stream, flush=True)

spark = SparkSession.builder.getOrCreate()
log4j = spark.sparkContext._jvm.org.apache.logging.log4j
log = log4j.LogManager.getContext(False)
(console,) = log.getConfiguration().getAppenders().values()
usual = console.getFilter().toString()
cores = min(2, spark.sparkContext.defaultParallelism)

def numbers(start, n):
    return pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})

def environment():
    return hg.StreamEnvironment(spark, parallelism=cores, config=hg.Config(registration_timeout="150 s"))

def endless():
    env = environment()
    rows = env.from_source(hg.sources.generate(numbers, rate=10_000))
    rows.key_by("n").aggregate(count=hg.count()).sink_to(hg.sinks.null())
    job = env.execute_async()
    while job.status() == "CREATED" or not job.metrics()["rows_in"] or console.getFilter().toString() == usual:
        time.sleep(0.02)
    return job

def error_of(run):
    try:
        run()
    except hg.HeadgateError as error:
        print(type(error).__name__, str(error).splitlines()[0], flush=True)

scene("right")
rows = environment().from_source(hg.sources.generate(numbers, rows=1000))
totals = rows.key_by("n").aggregate(final=True, count=hg.count(), total=hg.sum("n")).collect()
print(totals.num_rows, sum(totals["count"].to_pylist()), sum(totals["total"].to_pylist()))

scene("broken")
def wrong(batch):
    raise ValueError("not these")
env = environment()
rows = env.from_source(hg.sources.generate(numbers, rate=10_000))
rows.map_batches(wrong, schema=rows.schema).sink_to(hg.sinks.null())
error_of(env.execute)

scene("cancelled")
job = endless()
job.cancel()
error_of(job.wait)

scene("killed")
job = endless()
victim = job._master._attempt.members[0].pid
print(victim)
os.kill(victim, signal.SIGKILL)
error_of(job.wait)

deadline = time.monotonic() + 60
while console.getFilter().toString() != usual and time.monotonic() < deadline:
    time.sleep(0.02)

scene("own")
print("as it was:", console.getFilter().toString() == usual)
def own(batches):
    raise ValueError("a job of the user's own")
try:
    spark.range(1).mapInArrow(own, "id long").collect()
except Exception:
    pass

def lost(stage):
    log.getLogger("org.apache.spark.scheduler.TaskSetManager").warn(f"Lost task 0.0 in stage {stage}.0")

scene("meanwhile")
with Terminal(spark.sparkContext).without([7, 8]):
    for stage in (7, 78, 8, 9):
        lost(stage)

scene("wordy")
spark.sparkContext.setLogLevel("DEBUG")
with Terminal(spark.sparkContext).without([7]):
    lost(7)
spark.sparkContext.setLogLevel("WARN")

scene("by name")
log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler.TaskSetManager", log4j.Level.WARN)
with Terminal(spark.sparkContext).without([7]):
    lost(7)
scene("end")
"""


def by_scene(text: str) -> dict[str, list[str]]:
    """Return the lines of each scene, without Spark's progress bar, which overwrites itself."""
    _, *scenes = re.split(r"^.*--- ", re.sub(r"\[Stage [^\]]*\]|\r", "", text), flags=re.M)
    lines = [scene.split("\n") for scene in scenes]
    return {name: [line for line in said if line.strip()] for name, *said in lines}


def test_a_session_with_no_settings_at_all(tmp_path: Path) -> None:
    """Its workers would be the first `python3` of the path, which here only serves to find Spark.

    Spark writes pages to its terminal about each killed TaskManager, unless these are kept back. Messages about other
    tasks must stay.
    """
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\ncase "$1" in *find_spark_home*) exec {sys.executable} "$@";; esac\nexit 7\n')
    other.chmod(0o755)
    done = run_script(tmp_path, PLAIN, PATH=f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr[-3000:]
    answers, said = by_scene(done.stdout), by_scene(done.stderr)
    assert answers["right"] == ["1000 1000 499500"]
    (broken,) = answers["broken"]
    assert broken.startswith("UserFunctionError map_batches[")
    assert broken.endswith("wrong raised ValueError: not these")
    assert answers["cancelled"] == ["JobCancelled job 'job' was cancelled"]
    victim, error = answers["killed"]
    assert error.startswith(f"TaskManagerLost TaskManager 0 (process {victim} on 127.0.0.1) was lost: ")
    ours = [line for scene in ("right", "broken", "cancelled", "killed") for line in said[scene]]
    assert len(ours) < 5, "no more than a remark of Spark's on something else"
    assert not any("in stage" in line or line.startswith("\tat ") for line in ours)
    assert answers["own"] == ["as it was: True"]
    assert sum("a job of the user's own" in line for line in said["own"]) >= 2
    # Spark may report the loss of the user's own task late.
    of_the_scene = re.compile(r"Lost task 0\.0 in stage (\d+)\.0$")
    assert [lost[1] for line in said["meanwhile"] if (lost := of_the_scene.search(line))] == ["78", "9"]
    assert sum("Lost task 0.0 in stage 7.0" in line for line in said["wordy"]) == 1
    assert sum("Lost task 0.0 in stage 7.0" in line for line in said["by name"]) == 1
