"""Each operator of a chain has its own busy time, and each task says what it waits for."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

import headgate as hg
from headgate.bench.host import stolen_seconds
from headgate.connectors.connector import Source
from tests.runtime.jobs import NUMBERS, environment, eventually

pytestmark = pytest.mark.alone

STALL = 0.05


def slow(batch: pa.RecordBatch) -> pa.RecordBatch:
    threading.Event().wait(STALL)
    return batch


def worked(batch: pa.RecordBatch) -> pa.RecordBatch:
    end = time.thread_time() + STALL
    while time.thread_time() < end:
        pass
    return batch


def batches(count: int, rows: int = 10) -> Source:
    return hg.sources.iterable([[{"n": n} for n in range(rows)]] * count, schema=NUMBERS)


@pytest.mark.parametrize("processes", [False, True])
def test_the_slow_operator_of_a_chain_has_the_busy_time(processes: bool) -> None:
    """Source, function, filter and sink are one task, and no edge blocks."""
    env = environment(processes, parallelism=1)
    rows = env.from_source(batches(10)).map_batches(slow, schema=NUMBERS)
    rows.filter("n >= 0").sink_to(hg.sinks.null())
    metrics = env.execute().metrics
    operators, [task] = metrics["operators"], metrics["tasks"].values()
    assert operators["map_batches"]["busy_s"] >= 10 * STALL
    assert sum(operators[each]["busy_s"] for each in ("filter", "null")) < 5 * STALL
    assert task["busy_s"] >= operators["map_batches"]["busy_s"]
    assert task["cpu_s"] < 5 * STALL


def test_a_wait_for_output_is_not_busy_time_of_the_operator_before_it() -> None:
    env = environment(True, parallelism=1, segment_size=512)
    many = env.from_source(batches(10, rows=20_000)).map_batches(lambda batch: batch, schema=NUMBERS)
    many.rebalance().map_batches(slow, schema=NUMBERS).sink_to(hg.sinks.null())
    metrics = env.execute().metrics
    first, second = metrics["tasks"].values()
    assert metrics["operators"]["map_batches"]["busy_s"] < 5 * STALL
    assert first["soft_backpressured_s"] + first["hard_backpressured_s"] >= 2 * STALL
    assert second["busy_s"] >= 10 * STALL


def test_busy_time_agrees_with_the_processor_time_of_a_function_that_computes() -> None:
    """A host may take the processor away. The task is busy then, too, but its other times need not count that."""
    env = environment(True, parallelism=1)
    env.from_source(batches(40)).map_batches(worked, schema=NUMBERS).sink_to(hg.sinks.null())
    before = stolen_seconds()
    metrics = env.execute().metrics
    stolen = stolen_seconds() - before
    [task] = metrics["tasks"].values()
    assert task["cpu_s"] >= 40 * STALL
    ran = task["cpu_s"] + (task["run_delay_s"] or 0.0)
    assert 0.95 * ran <= task["busy_s"] <= 1.05 * ran + stolen
    assert metrics["operators"]["map_batches"]["busy_s"] == pytest.approx(task["busy_s"], rel=0.05)


def test_an_open_stall_is_seen_while_it_lasts() -> None:
    open_gate = threading.Event()

    def held(batch: pa.RecordBatch) -> pa.RecordBatch:
        open_gate.wait(60)
        return batch

    env = environment(False, parallelism=1)
    env.from_source(batches(1)).map_batches(held, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()

    def is_seen() -> bool:
        operators = job.metrics().get("operators", {})
        return "map_batches" in operators and operators["map_batches"]["busy_s"] > 0.5

    try:
        eventually(is_seen, 30)
        assert job.metrics()["rows_out"] == 0
    finally:
        open_gate.set()
        job.wait(60)
