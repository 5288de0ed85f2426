from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.spark.failures import WORKER_DIED
from headgate.spark.gang import SparkGang, barrier_tasks
from headgate.spark.slots import reserve_slots
from tests.ending import END

pytestmark = pytest.mark.timeout(300)

#: How long Spark may take to end a gang of stand-ins where other tests run at the same time, seconds.
PATIENCE = 90.0
#: The same in tests that also run alone. The stand-ins ignore it, so Spark kills each after a delay.
OVER_WITHIN = 20.0 if END < PATIENCE / 10 else PATIENCE


@pytest.fixture(scope="session", params=["local[2]", "local-cluster[2,1,1024]"])
def master(request: pytest.FixtureRequest) -> str:
    """Return a local master or one with executors. The tests of whole jobs also run on a standalone master."""
    return str(request.param)


def test_all_tasks_run_at_once_and_end(start: Callable[..., Any]) -> None:
    started = start(2, payload=bytes(3_000_000))
    facts = [task.facts for task in started.tasks]
    assert [fact["index"] for fact in facts] == [0, 1]
    assert len({fact["pid"] for fact in facts}) == 2
    assert {fact["payload"] for fact in facts} == {3_000_000}
    assert {fact["python"] for fact in facts} == {sys.executable}
    assert {fact["host"] for fact in facts} == {"127.0.0.1"}  # the executors' own address
    for task in started.tasks:
        task.order("end")
    assert started.ended.get(timeout=PATIENCE) == (None, "")
    assert started.gang.join(PATIENCE)


@pytest.mark.turns(2)
def test_join_returns_false_while_tasks_run(start: Callable[..., Any]) -> None:
    started = start(2)
    assert not started.gang.join(0.01)
    started.gang.cancel()
    assert started.gang.join(PATIENCE)


@pytest.mark.turns(2)
@pytest.mark.ends
def test_a_cancelled_gang_is_over_in_time(start: Callable[..., Any]) -> None:
    started = start(2)
    began = time.monotonic()
    started.gang.cancel()
    started.gang.cancel()
    assert started.ended.get(timeout=OVER_WITHIN) == (None, "its Spark job was cancelled")
    assert started.gang.join(OVER_WITHIN)
    for task in started.tasks:
        task.await_death(OVER_WITHIN)
    assert time.monotonic() - began < OVER_WITHIN


def test_a_gang_cancelled_before_spark_knows_it_never_starts(spark: SparkSession) -> None:
    def main(_payload: bytes, _index: int, _host: str) -> None:
        import threading

        threading.Event().wait()

    reasons: list[tuple[int | None, str]] = []
    gang = SparkGang(spark, barrier_tasks(spark, main, b"", 2, None), 2, lambda *reason: reasons.append(reason))
    gang.cancel()
    assert gang.join(PATIENCE)
    assert reasons == [(None, "its Spark job was cancelled")]


@pytest.mark.turns(2)
def test_a_task_that_raises_is_named(start: Callable[..., Any]) -> None:
    started = start(2)
    started.tasks[1].order("raise")
    index, reason = started.ended.get(timeout=PATIENCE)
    assert index == 1
    assert reason.startswith("its Python worker raised an error\nTraceback")
    assert reason.endswith("ValueError: the test ordered it")
    assert started.gang.join(PATIENCE)


@pytest.mark.turns(2)
@pytest.mark.ends
def test_a_killed_worker_ends_the_gang(start: Callable[..., Any]) -> None:
    started = start(2)
    began = time.monotonic()
    os.kill(started.tasks[1].facts["pid"], signal.SIGKILL)
    assert started.ended.get(timeout=OVER_WITHIN) == (1, WORKER_DIED)
    started.tasks[0].await_death(OVER_WITHIN)
    assert started.gang.join(OVER_WITHIN)
    assert time.monotonic() - began < OVER_WITHIN


@pytest.mark.ends
@pytest.mark.soak
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]"], indirect=True)
def test_a_killed_executor_ends_the_gang_and_is_replaced(start: Callable[..., Any], spark: SparkSession) -> None:
    """test_deployment.py and test_restarts.py kill executors of whole jobs."""
    started = start(2)
    began = time.monotonic()
    os.kill(started.tasks[0].facts["executor"], signal.SIGKILL)
    index, reason = started.ended.get(timeout=OVER_WITHIN)
    assert index == 0
    assert reason.startswith("its Spark executor was lost: ")
    for task in started.tasks:
        task.await_death(OVER_WITHIN)
    assert started.gang.join(OVER_WITHIN)
    assert time.monotonic() - began < OVER_WITHIN

    with reserve_slots(spark.sparkContext, 2, timeout=150):
        pass
    again = start(2)
    for task in again.tasks:
        task.order("end")
    assert again.ended.get(timeout=90) == (None, "")
