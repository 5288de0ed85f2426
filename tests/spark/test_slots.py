from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.config import Config
from headgate.connectors.iterable_source import ListSource
from headgate.errors import ConfigError, NotEnoughSlots
from headgate.spark.slots import count_slots, reserve_slots, slots_held
from headgate.spark.spark_deployment import SparkDeployment
from tests.runtime.jobs import eventually
from tests.spark.conftest import run_script

pytestmark = pytest.mark.timeout(300)


def reserve(deployment: SparkDeployment, count: int, config: Config, besides: int = 0) -> None:
    """Reserve slots, and give them back at once."""
    with deployment.reserve(count, config, besides, threading.Event()):
        pass


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_a_local_master_without_enough_slots_fails_at_once(spark: SparkSession) -> None:
    deployment = SparkDeployment(spark)
    config = Config(slots_timeout="1 h")
    assert count_slots(spark.sparkContext) == 3
    reserve(deployment, 3, config)
    began = time.monotonic()
    with (
        pytest.raises(NotEnoughSlots, match=r"needs 4 Spark task slots .* has 3; set parallelism to 3 or less"),
        deployment.reserve(4, config, 0, threading.Event()),
    ):
        pass
    assert time.monotonic() - began < 60  # not the hour of slots_timeout


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]"], indirect=True)
def test_starting_executors_are_awaited_up_to_the_timeout(spark: SparkSession) -> None:
    with reserve_slots(spark.sparkContext, 2, timeout=150):
        pass
    assert count_slots(spark.sparkContext) == 2
    with (
        pytest.raises(NotEnoughSlots, match=r"has 2 after waiting 0\.2 s \(slots_timeout\); set parallelism to 2"),
        reserve_slots(spark.sparkContext, 3, timeout=0.2),
    ):
        pass
    cancelled = threading.Event()
    cancelled.set()
    with reserve_slots(spark.sparkContext, 3, 3600, cancelled=cancelled):
        pass  # a cancelled job does not wait


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_slots_that_other_jobs_of_the_program_hold_are_awaited(start: Callable[..., Any], spark: SparkSession) -> None:
    deployment, soon, patient = SparkDeployment(spark), Config(slots_timeout="50 ms"), Config(slots_timeout="90 s")
    other = start(2)
    reserve(deployment, 1, soon)
    why = r"needs 2 Spark task slots .* has 3, of which other jobs of this program hold 2 \(1 running\) after waiting "
    with (
        pytest.raises(NotEnoughSlots, match=why + r".*; run fewer jobs at a time, set parallelism to 1 or less"),
        deployment.reserve(2, soon, 0, threading.Event()),
    ):
        pass
    with (
        pytest.raises(NotEnoughSlots, match=r"; run fewer jobs at a time, raise slots_per_task, or .* local\[5\]"),
        deployment.reserve(2, soon, 1, threading.Event()),
    ):
        pass
    for task in other.tasks:
        task.order("end")
    reserve(deployment, 3, patient)
    assert other.gang.join(90)


class HeldUp(ListSource):
    """A source whose `prepare` waits: then its job has its slots, and has not launched TaskManagers."""

    def __init__(self) -> None:
        self._items = [pa.record_batch({"n": [1]})]
        super().__init__(self._items, None)
        self.waits, self.go_on = threading.Event(), threading.Event()

    def __reduce__(self) -> tuple[Any, ...]:
        return ListSource, (self._items, None)

    def prepare(self) -> None:
        super().prepare()
        self.waits.set()
        assert self.go_on.wait(90)


def started(job: Callable[[], Any]) -> Future[Any]:
    """Run a job on a thread of its own, and return its answer."""
    answer: Future[Any] = Future()
    threading.Thread(target=lambda: answer.set_result(job())).start()
    return answer


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_slots_of_a_job_that_has_not_launched_yet_are_not_given_away(spark: SparkSession) -> None:
    source, slow, soon = HeldUp(), Config(), Config(slots_timeout="50 ms")
    first = started(hg.StreamEnvironment(spark, parallelism=2, config=slow).from_source(source).collect)
    try:
        assert source.waits.wait(90)
        second = hg.StreamEnvironment(spark, parallelism=2, config=soon)
        with pytest.raises(NotEnoughSlots, match=r"has 3, of which other jobs of this program hold 2"):
            second.from_source(hg.sources.iterable([pa.record_batch({"n": [2]})])).collect()
    finally:
        source.go_on.set()
    assert first.result(90).num_rows == 1


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_a_job_that_fails_before_it_launches_gives_its_slots_back(spark: SparkSession, tmp_path: Path) -> None:
    env = hg.StreamEnvironment(spark, parallelism=2)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": [1]})]))
    (tmp_path / "file").touch()
    rows.sink_to(hg.sinks.parquet(tmp_path / "file" / "out"))
    with pytest.raises(hg.SinkError):
        env.execute()
    assert slots_held(spark.sparkContext) == []


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_jobs_submitted_at_once_run_one_after_the_other(spark: SparkSession) -> None:
    def rows() -> int:
        env = hg.StreamEnvironment(spark, parallelism=2, config=Config(slots_timeout="90 s"))
        stream = env.from_source(hg.sources.iterable([pa.record_batch({"n": [n]}) for n in range(4)]))
        together.wait(90)
        return stream.key_by("n").aggregate(final=True, rows=hg.count()).collect().num_rows  # type: ignore[no-any-return]

    together = threading.Barrier(3)
    answers = [started(rows) for _ in range(3)]
    assert [answer.result(150) for answer in answers] == [4, 4, 4]


@pytest.mark.parametrize("master", ["local[3]"], indirect=True)
def test_a_job_whose_slots_other_spark_jobs_hold_says_why_it_waits(spark: SparkSession, tmp_path: Path) -> None:
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
        why = r"TaskManager 0, TaskManager 1 did not register .* Spark has not started their tasks, because other"
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
def test_a_deployment_needs_a_taskmanager_for_each_slots_per_task(spark: SparkSession) -> None:
    deployment = SparkDeployment(spark)
    assert deployment.name == "Spark local[2]"
    assert deployment.bind_hosts() == "127.0.0.1"
    assert [deployment.taskmanagers(p, Config(slots_per_task=2)) for p in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]


DYNAMIC = """
import headgate as hg
from pyspark.sql import SparkSession
settings = {"dynamicAllocation.enabled": "true", "ui.enabled": "false", "driver.host": "127.0.0.1",
            "driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder.master("local-cluster[1,1,1024]")
for name, value in settings.items():
    builder = builder.config(f"spark.{name}", value)
spark = builder.getOrCreate()
try:
    hg.StreamEnvironment(spark).from_source(hg.sources.iterable([[{"n": 1}]])).collect()
except hg.ConfigError as error:
    print(error)
try:
    spark.sparkContext.parallelize([1], 1).barrier().mapPartitions(iter).collect()
except Exception as error:
    print("SPARK-24942" in str(error))
spark.stop()
"""


@pytest.mark.soak
def test_a_session_with_dynamic_allocation_is_refused(tmp_path: Path) -> None:
    """Spark's own barrier job shows that the session could not run the job."""
    done = run_script(tmp_path, DYNAMIC)
    said, refused_by_spark = done.stdout.splitlines()
    assert said.startswith("Spark's dynamic allocation cannot run barrier jobs (SPARK-24942)"), done.stderr
    assert refused_by_spark == "True"


def test_dynamic_allocation_is_refused() -> None:
    settings = {"spark.dynamicAllocation.enabled": "true"}
    context: Any = SimpleNamespace(master="yarn", getConf=lambda: settings)
    with (
        pytest.raises(ConfigError, match=r"cannot run barrier jobs .*minExecutors .*dynamicAllocation\.enabled=false"),
        reserve_slots(context, 1, timeout=0),
    ):
        pass
