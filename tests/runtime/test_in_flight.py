"""What is under way between tasks, and the two kinds of back-pressure, as a job's metrics show them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.exchange.pending import PendingBudget
from headgate.runtime.taskmanager import taskmanager
from tests.ending import within
from tests.runtime.jobs import NUMBERS, counted, endless, environment, eventually


class Gate:
    """A sink that stands until the test opens it."""

    def __init__(self) -> None:
        self.opens = threading.Event()

    def __call__(self, batch: pa.RecordBatch, info: object) -> None:
        self.opens.wait(60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opens.set()


def in_flight(job: hg.JobHandle, place: str) -> int:
    return sum(each[place] for each in job.metrics()["in_flight"])


def stand(job: hg.JobHandle) -> dict[str, Any]:
    """The metrics once the source has come to a stop."""
    source = "generate[0]"
    eventually(lambda: job.metrics()["tasks"].get(source, {}).get("soft_backpressured_s", 0) > 0.3)
    return job.metrics()


def test_a_stalled_sink_shows_bytes_in_every_place_but_gathering(gate: Gate) -> None:
    env = environment(segment_size=4096, message_size=16384)
    endless(env).rebalance().disable_chaining().sink_to(hg.sinks.for_each_batch(gate))
    job = env.execute_async()
    metrics = stand(job)
    assert len(metrics["in_flight"]) == 2
    assert in_flight(job, "segments") > 0
    assert in_flight(job, "pending") > 0
    pools = sum(task["segments_in_use"] for task in metrics["tasks"].values()) * 4096
    held = 2 * (2 + 8) * 4096  # the receiving ends' exclusive and floating ones
    assert in_flight(job, "segments") <= pools + held
    assert metrics["tasks"]["generate[0]"]["hard_backpressured_s"] == 0
    gate.opens.set()
    job.cancel()


def test_one_input_that_makes_too_much_waits_hard(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taskmanager, "PendingBudget", lambda: PendingBudget(1 << 14))

    def many(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [batch] * 100

    env = environment(segment_size=512, message_size=512)
    made = endless(env).map_batches(many, schema=NUMBERS)
    made.rebalance().disable_chaining().sink_to(hg.sinks.for_each_batch(gate))
    job = env.execute_async()
    eventually(lambda: any(task["hard_backpressured_s"] > 0.3 for task in job.metrics()["tasks"].values()))
    gate.opens.set()
    job.cancel()


@pytest.mark.alone
def test_a_hard_wait_for_one_channel_holds_up_no_other(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taskmanager, "PendingBudget", lambda: PendingBudget(1 << 14))

    def one_and_many(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        return [batch.slice(1, 1)] + [batch.slice(0, 1)] * 20_000

    def sink(batch: pa.RecordBatch, info: object) -> None:
        if batch.column("n")[0].as_py():
            gate.opens.set()
        else:
            gate(batch, info)

    env = environment(segment_size=512, message_size=512)
    made = counted(env, rows=2).map_batches(one_and_many, schema=NUMBERS)
    made.partition_by(lambda batch, subtasks: batch.column("n").to_numpy()).sink_to(hg.sinks.for_each_batch(sink))
    job = env.execute_async()
    with within(30):
        job.wait(60)


def test_what_was_read_is_not_in_flight_any_more() -> None:
    env = environment()
    counted(env).rebalance().sink_to(hg.sinks.null())
    job = env.execute_async()
    job.wait(60)
    for memory in job.metrics()["network_memory"]:
        assert memory == {"segments": 2048, "available": 2048, "requested_usage": 0.0, "segment_size": 32768}
    assert all(value == 0 for each in job.metrics()["in_flight"] for value in each.values())
