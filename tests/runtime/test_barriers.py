"""Barriers through whole jobs: who has to wait for whom, what is overtaken, and that every job comes to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.config import FlowControl
from headgate.records.events import Alignment, CheckpointBarrier
from headgate.runtime.control_messages import Part
from headgate.runtime.task.barriers import TaskBarriers
from tests.runtime.jobs import NUMBERS, counted, endless, environment, eventually, keyed, wait_until_running

#: Patience of every wait here, seconds.
PATIENCE = 50.0


class Door:
    """Where a function of a job stands until the test opens it; a file, since it may be in another process."""

    def __init__(self, folder: Path) -> None:
        self.open_file = folder / "open"
        self.reached = folder / "reached"

    def pass_through(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.reached.touch()
        deadline = time.monotonic() + PATIENCE
        while not self.open_file.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return batch

    def open(self) -> None:
        self.open_file.touch()


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path)
    yield door
    door.open()


def parts(job: hg.JobHandle, checkpoint: int) -> dict[str, Part]:
    return job._master.checkpoint_parts(checkpoint)


def part_of(job: hg.JobHandle, checkpoint: int, task: str) -> Part:
    """What a task says of a checkpoint, as soon as it does."""
    found: Part = eventually(lambda: parts(job, checkpoint).get(task), PATIENCE)
    return found


def is_backpressured(job: hg.JobHandle, task: str) -> bool:
    return bool(job.metrics()["tasks"].get(task, {}).get("soft_backpressured_s", 0) > 0.1)


def end(job: hg.JobHandle) -> None:
    job.cancel()
    with pytest.raises(hg.JobCancelled):
        job.wait(PATIENCE)


@pytest.mark.parametrize("alignment", Alignment)
def test_a_barrier_reaches_every_task_once(processes: bool, alignment: Alignment) -> None:
    env = environment(processes)
    keyed(endless(env, rate=20_000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    tasks = set(job.metrics()["tasks"])
    assert len(tasks) >= 4
    for number in range(1, 4):
        assert job._master.inject_barrier(alignment, timeout=0.001) == number
        eventually(lambda: set(parts(job, number)) == tasks, PATIENCE)  # noqa: B023
    last = parts(job, 3)
    assert not any(part["aborted"] for part in last.values())
    assert all(0 <= part["triggered_s"] <= part["completed_s"] for part in last.values())
    assert all(part["start_delay_s"] + part["alignment_s"] <= part["completed_s"] + 1e-6 for part in last.values())
    if alignment is not Alignment.TIMEOUT:
        assert {part["unaligned"] for part in last.values()} == {alignment is Alignment.UNALIGNED}
    end(job)


def two_streams(env: hg.StreamEnvironment, odd: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    """One source, whose even rows go to worker[1] and odd ones to worker[3], both in TaskManager 1."""

    def apart(batch: pa.RecordBatch, _subtasks: int) -> Any:
        return 1 + 2 * (batch["n"].to_numpy() % 2)

    def work(batch: pa.RecordBatch) -> pa.RecordBatch:
        return odd(batch) if batch["n"][0].as_py() % 2 else batch

    source = endless(env).set_parallelism(1)
    workers = source.partition_by(apart).map_batches(work, schema=NUMBERS).name("worker").set_parallelism(4)
    workers.sink_to(hg.sinks.null()).set_parallelism(4)


def test_a_healthy_sibling_takes_its_barrier_while_another_channel_stalls(door: Door) -> None:
    """Both share one connection, on which credit holds back the stalled channel alone."""
    env = environment(processes=True, parallelism=4, segment_size=4096, message_size=4096)
    two_streams(env, door.pass_through)
    job = env.execute_async()
    eventually(lambda: is_backpressured(job, "generate[0]"), PATIENCE)
    checkpoint = job._master.inject_barrier()
    healthy = part_of(job, checkpoint, "worker -> null[1]")
    assert not healthy["aborted"]
    assert "worker -> null[3]" not in parts(job, checkpoint), "it came in spite of the stall"
    door.open()
    stalled = part_of(job, checkpoint, "worker -> null[3]")
    assert stalled["completed_s"] > healthy["completed_s"]
    assert stalled["overtaken_in_bytes"] == 0
    end(job)


@pytest.mark.parametrize("timeout", [None, 0.05])
def test_a_barrier_that_overtakes_counts_what_waits_before_it(
    door: Door, processes: bool, timeout: float | None
) -> None:
    """At once, or after its timeout: in the source's queues and in those of the task that stands."""
    env = environment(processes, parallelism=4, segment_size=4096, message_size=4096)
    two_streams(env, door.pass_through)
    job = env.execute_async()
    eventually(lambda: is_backpressured(job, "generate[0]"), PATIENCE)
    if timeout is None:
        checkpoint = job._master.inject_barrier(Alignment.UNALIGNED)
    else:
        checkpoint = job._master.inject_barrier(Alignment.TIMEOUT, timeout)
    eventually(lambda: parts(job, checkpoint).get("generate[0]", {}).get("overtaken_out_bytes"), PATIENCE)  # type: ignore[call-overload]
    assert part_of(job, checkpoint, "generate[0]")["unaligned"]
    door.open()
    stalled = part_of(job, checkpoint, "worker -> null[3]")
    assert stalled["unaligned"]
    assert stalled["overtaken_in_bytes"] > 0
    end(job)


@pytest.mark.turns(2)
@pytest.mark.parametrize("flow_control", [FlowControl.CREDIT, FlowControl.TCP])
@pytest.mark.parametrize("count", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_a_diamond_with_a_stalled_arm_terminates(
    door: Door, processes: bool, flow_control: FlowControl, count: int
) -> None:
    """The join holds back the arm whose barrier is in; so the source stops, and the other arm must still come on."""
    rows = 40_000
    env = environment(processes, segment_size=1024, message_size=1024, flow_control=flow_control)
    source = counted(env, rows).set_parallelism(1)
    fast = source.rebalance().map_batches(_same, schema=NUMBERS).name("fast")
    slow = source.rebalance().map_batches(door.pass_through, schema=NUMBERS).name("slow")
    sink = hg.sinks.collect()
    joined = fast.union(slow).key_by("n").aggregate(rows=hg.count(), final=True)
    joined.sink_to(sink)
    job = env.execute_async()
    eventually(door.reached.exists, PATIENCE)
    checkpoints = [job._master.inject_barrier() for _ in range(count)]
    part_of(job, checkpoints[0], "fast[0]")
    door.open()
    assert job.wait(PATIENCE).rows_in == rows
    table = sink.to_table()
    assert table.num_rows == rows
    assert set(np.unique(table["rows"].to_numpy())) == {2}
    for checkpoint in checkpoints:
        assert not any(part["aborted"] for part in parts(job, checkpoint).values())


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_subtasks_that_share_a_connection_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credit. The source writes much to one worker, then as much to the other, and so on, over one connection.
    A barrier is behind what is due for the first, and at once at the other: there the rows that follow it fill the
    worker's output, which the sink holds back, and its input, and so the connection, on which the first barrier is
    still to come. The sink waits for both; its channel from the other worker must take what comes meanwhile."""
    monkeypatch.setattr("headgate.transport.sockets.SOCKET_BUFFER", 16 << 10)
    batch_rows = 128 << 10
    env = environment(
        parallelism=4,
        segment_size=8192,
        message_size=8192,
        buffers_per_channel=16,
        floating_buffers_per_gate=1,
        max_buffers_per_channel=100,
        flow_control=FlowControl.TCP,
    )

    def made(start: int, n: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array(np.arange(start, start + n))], schema=NUMBERS)

    def in_turn(batch: pa.RecordBatch, _subtasks: int) -> Any:
        return 1 + 2 * (batch["n"].to_numpy() // batch_rows % 2)

    def many(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.array(np.repeat(batch["n"].to_numpy(), 40))], schema=NUMBERS)

    def to_one(batch: pa.RecordBatch, _subtasks: int) -> Any:
        return np.ones(batch.num_rows, np.int64)

    source = env.from_source(hg.sources.generate(made, batch_rows=batch_rows)).set_parallelism(1)
    workers = source.partition_by(in_turn).map_batches(many, schema=NUMBERS).name("worker").set_parallelism(4)
    workers.partition_by(to_one).sink_to(hg.sinks.null()).set_parallelism(2)
    job = env.execute_async()
    eventually(lambda: is_backpressured(job, "generate[0]"), PATIENCE)
    assert not part_of(job, job._master.inject_barrier(), "null[1]")["aborted"]
    assert eventually(lambda: job.metrics()["tasks"]["null[1]"]["alignment_spilled_bytes"], PATIENCE) > 0
    end(job)


def test_a_newer_checkpoint_ends_one_that_cannot_complete_and_says_so_downstream(door: Door) -> None:
    """A priority barrier overtakes the aligned one before it."""
    env = environment(parallelism=4, segment_size=4096, message_size=4096)
    two_streams(env, door.pass_through)
    job = env.execute_async()
    eventually(lambda: is_backpressured(job, "generate[0]"), PATIENCE)
    first, second = job._master.inject_barrier(), job._master.inject_barrier(Alignment.UNALIGNED)
    part_of(job, second, "generate[0]")
    door.open()
    assert not part_of(job, second, "worker -> null[3]")["aborted"]
    end(job)
    assert "worker -> null[3]" not in parts(job, first), "too late: a newer one is complete"


def test_without_credit_nothing_overtakes() -> None:
    env = environment(flow_control=FlowControl.TCP)
    keyed(endless(env, rate=1000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    with pytest.raises(hg.ConfigError, match="a barrier overtakes only with flow_control='credit'"):
        job._master.inject_barrier(Alignment.UNALIGNED)
    end(job)


def test_a_source_that_has_ended_is_not_waited_for(processes: bool) -> None:
    env = environment(processes)
    short = counted(env, 100).name("short")
    sink = hg.sinks.null()
    short.union(endless(env, rate=20_000).name("long")).key_by("n").aggregate(rows=hg.count()).sink_to(sink)
    job = env.execute_async()
    wait_until_running(job, 200)
    checkpoint = job._master.inject_barrier()
    eventually(lambda: sum(name.startswith("aggregate") for name in parts(job, checkpoint)) == 2, PATIENCE)
    end(job)


def test_a_task_that_has_ended_takes_no_part() -> None:
    """It has no outputs here, and a barrier may come just before its end, or just after it."""
    parts: list[Part] = []
    barriers = TaskBarriers("sink", [], [], parts.append)
    barriers.inject(CheckpointBarrier(1, 0))
    barriers.on_time(time.monotonic())
    barriers.inject(CheckpointBarrier(2, 0))
    barriers.end()
    barriers.inject(CheckpointBarrier(3, 0))
    barriers.on_time(time.monotonic())
    assert [part["checkpoint"] for part in parts] == [1]
    assert barriers.deadline is None
