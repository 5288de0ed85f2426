"""Whole jobs in every mode of the data plane: the same answers, and all memory back whenever they end."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from tests.pipelines.pipeline_rig import assert_same, expected, stream_of
from tests.runtime.jobs import NUMBERS, counted, endless, error_of, eventually, keyed, wait_until_running

pytestmark = pytest.mark.timeout(180)
MODES = ["tcp", "unbounded"]
#: So few and small that everything waits for buffers all the time.
SCARCE: dict[str, Any] = {
    "segment_size": 512,
    "message_size": 2048,
    "buffers_per_channel": 1,
    "floating_buffers_per_gate": 1,
}


def environment(mode: str, processes: bool = False, parallelism: int = 3, **options: Any) -> hg.StreamEnvironment:
    deployment = hg.LocalDeployment(taskmanagers=2, processes=processes)
    config = hg.Config(flow_control=mode, paranoid=True, **options)
    return hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)


def windows(env: hg.StreamEnvironment) -> pa.Table:
    """Two exchanges in a row, each to every TaskManager."""
    by_name = stream_of(env).key_by("name").window(hg.tumble("10 s")).aggregate(rows=hg.count(), total=hg.sum("number"))
    return by_name.key_by("rows").aggregate(final=True, groups=hg.count(), total=hg.sum("total")).collect()


WANTED = """
    with small as (
        select name, time_bucket(interval 10 seconds, ts, timestamp '1970-01-01') as start, count(*) as rows,
            sum(number)::bigint as total
        from events group by all
    )
    select rows, count(*) as groups, sum(total)::bigint as total from small group by rows
"""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", [{}, SCARCE], ids=["default buffers", "few small buffers"])
def test_threads_give_the_same_answer(mode: str, options: dict[str, Any]) -> None:
    assert_same(windows(environment(mode, **options)), expected(WANTED))


@pytest.mark.parametrize("mode", MODES)
def test_processes_give_the_same_answer(mode: str) -> None:
    assert_same(windows(environment(mode, processes=True, **SCARCE)), expected(WANTED))


@pytest.mark.parametrize("mode", MODES)
def test_a_diamond_with_a_slow_arm_ends(mode: str) -> None:
    """One source, two ways to the same keys, one of them slow: neither may wait for the other for ever."""
    env = environment(mode, parallelism=2, **SCARCE)

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.002)
        return batch

    rows = counted(env, 4000)
    slow = rows.rebalance().map_batches(slowly, schema=NUMBERS)
    totals = slow.union(rows).key_by("n").aggregate(final=True, times=hg.count()).collect()
    assert sorted(totals["n"].to_pylist()) == list(range(4000))
    assert set(totals["times"].to_pylist()) == {2}


@pytest.mark.turns(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 5_000, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_job_cancelled_at_any_moment_returns_all_its_memory(mode: str, rows: int) -> None:
    """The memory of TaskManagers that are threads is watched for every test (tests/conftest.py)."""
    env = environment(mode, **SCARCE)
    endless(env).key_by("n").aggregate(rows=hg.count()).sink_to(
        hg.sinks.for_each_batch(lambda batch, number: time.sleep(0.005))
    )
    job = env.execute_async()
    wait_until_running(job, rows)
    job.cancel()
    assert job.status() == "CANCELLED"


def test_queues_without_a_limit_end_the_job_when_memory_is_used_up() -> None:
    env = environment("unbounded", network_memory="1 mb", segment_size=4096)
    keyed(endless(env)).sink_to(hg.sinks.for_each_batch(lambda batch, number: time.sleep(0.05)))
    error = error_of(env.execute_async())
    assert isinstance(error, hg.NetworkMemoryFull)
    assert re.match(r"out of memory at \d+\.\d s: (input|output) of ", error.message)
    assert "flow_control='unbounded' does not slow the producer down" in error.message
    assert "network_memory" in error.message


def test_queues_without_a_limit_hold_back_no_source() -> None:
    """The sink takes nothing until the source has made all its rows."""
    env = environment("unbounded")
    rows, made = 200_000, threading.Event()

    def wait(_batch: pa.RecordBatch, _number: object) -> None:
        assert made.wait(60)

    keyed(counted(env, rows)).rebalance().sink_to(hg.sinks.for_each_batch(wait))
    job = env.execute_async()
    eventually(lambda: job.status() == "FAILED" or job.metrics()["rows_in"] == rows)
    stops = sum(task["reader_stops"] for task in job.metrics()["tasks"].values())
    made.set()
    assert job.wait(60).rows_out == rows
    assert stops == 0
