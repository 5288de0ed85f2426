from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.config import Config
from headgate.errors import ConfigError, NotEnoughSlots
from headgate.spark.deployment import SparkDeployment
from headgate.spark.slots import count_slots, wait_for_slots
from tests.runtime.jobs import eventually

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_a_local_master_has_what_it_has(spark: SparkSession) -> None:
    deployment = SparkDeployment(spark)
    config = Config(slots_timeout="1 h")
    assert count_slots(spark.sparkContext) == 3
    deployment.check(3, config, 0, threading.Event())
    began = time.monotonic()
    with pytest.raises(NotEnoughSlots, match=r"needs 4 Spark task slots .* has 3; set parallelism to 3 or less"):
        deployment.check(4, config, 0, threading.Event())
    assert time.monotonic() - began < 60  # and not an hour


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]"], indirect=True)
def test_executors_on_their_way_are_awaited_but_not_for_ever(spark: SparkSession) -> None:
    wait_for_slots(spark.sparkContext, 2, timeout=150)
    assert count_slots(spark.sparkContext) == 2
    with pytest.raises(NotEnoughSlots, match=r"has 2 after waiting 0\.2 s \(slots_timeout\); set parallelism to 2"):
        wait_for_slots(spark.sparkContext, 3, timeout=0.2)
    cancelled = threading.Event()
    cancelled.set()
    wait_for_slots(spark.sparkContext, 3, 3600, cancelled=cancelled)  # returns


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_slots_that_other_jobs_of_the_program_hold_are_awaited(start: Callable[..., Any], spark: SparkSession) -> None:
    deployment, soon, patient = SparkDeployment(spark), Config(slots_timeout="50 ms"), Config(slots_timeout="90 s")
    other = start(2)
    deployment.check(1, soon, 0, threading.Event())
    why = r"needs 2 Spark task slots .* has 3, of which other jobs of this program hold 2 \(1 running\) after waiting "
    with pytest.raises(NotEnoughSlots, match=why + r".*; run fewer jobs at a time, set parallelism to 1 or less"):
        deployment.check(2, soon, 0, threading.Event())
    with pytest.raises(NotEnoughSlots, match=r"; run fewer jobs at a time, raise slots_per_task, or .* local\[5\]"):
        deployment.check(2, soon, 1, threading.Event())
    for task in other.tasks:
        task.order("end")
    deployment.check(3, patient, 0, threading.Event())
    assert other.gang.join(90)


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_a_job_whose_slots_other_spark_jobs_hold(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        while not gate.exists():
            time.sleep(0.01)
        yield from batches

    rows = spark.range(0, 3, 1, 3).mapInArrow(hold, "id long")
    other = threading.Thread(target=rows.collect)
    other.start()
    try:
        eventually(lambda: sum(stage.numActiveTasks for stage in active_stages(spark)) == 3, 90)
        env = hg.StreamEnvironment(spark, parallelism=2, config=Config(registration_timeout="500 ms"))
        why = r"TaskManager 0, TaskManager 1 did not register .* Spark has not started their tasks, for other"
        with pytest.raises(hg.TaskManagerLost, match=why):
            env.from_source(hg.sources.iterable([pa.record_batch({"n": [1]})])).collect()
    finally:
        gate.touch()
        other.join()


def active_stages(spark: SparkSession) -> list[Any]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return [stage for stage in stages if stage is not None]


@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_the_shape_of_a_deployment(spark: SparkSession) -> None:
    deployment = SparkDeployment(spark)
    assert deployment.name == "Spark local[2]"
    assert deployment.bind_hosts() == "127.0.0.1"
    assert [deployment.taskmanagers(p, Config(slots_per_task=2)) for p in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


def test_dynamic_allocation_is_refused() -> None:
    settings = {"spark.dynamicAllocation.enabled": "true"}
    context: Any = SimpleNamespace(master="yarn", getConf=lambda: settings)
    with pytest.raises(ConfigError, match=r"cannot run barrier jobs .*dynamicAllocation\.enabled=false"):
        wait_for_slots(context, 1, timeout=0)
