"""A source with a schedule: after each block its task waits for the next one, but for nothing that is due before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.connector import ReaderContext, SourceReader
from headgate.connectors.read_bursts import ReadBursts
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.operators.operator import OperatorContext
from headgate.records.elements import LatencyMarker
from headgate.records.events import CheckpointBarrier
from headgate.runtime.latency_markers import MarkerTimer
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.chain import Chained
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.task.heads import END, MORE, WAIT, SourceHead
from headgate.runtime.task.task import Task
from headgate.runtime.task.time_account import Wait
from tests.runtime.test_process_function import Box
from tests.runtime.test_process_function import Writer as IdleWriter


def numbers(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch({"n": np.arange(start, start + n)})


class Noted(Chained):
    """An output that notes what it gets. `on_rows` is called with each batch."""

    def __init__(self) -> None:
        self.notes: list[object] = []
        self.on_rows: Callable[[], None] = lambda: None

    def emit(self, batch: pa.RecordBatch) -> None:
        self.notes += batch.column("n").to_pylist()
        self.on_rows()

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None:
        self.notes.append("active" if active else "idle")

    def emit_marker(self, marker: LatencyMarker) -> None:
        self.notes.append("marker")


class Rig:
    """A source of `rate` rows per second, from second 100 on. The test sets the time."""

    def __init__(
        self,
        *,
        rows: int | None = None,
        rate: float = 0.1,
        idle_timeout: float | None = None,
        marker_interval: float | None = None,
        bursts: ReadBursts | None = None,
    ) -> None:
        self.now = 100.0
        self.output = Noted()
        self.clocks = Clocks(self.clock, self.clock)
        self._source: Any = hg.sources.generate(numbers, rate=rate, rows=rows, time="at")
        schema = self._source.schema
        watermarks = WatermarkGenerator("at", schema, idle_timeout=idle_timeout, clock=self.clock)
        self.head = SourceHead(
            self._open,
            schema=schema,
            plain=None,
            watermarks=watermarks,
            idle_timeout=idle_timeout,
            output=self.output,
            context=OperatorContext("job", "source", 0, 1, 1),
            markers=None if marker_interval is None else MarkerTimer(marker_interval, 0, 0),
            clocks=self.clocks,
            bursts=bursts,
        )

    def clock(self) -> float:
        return self.now

    def step_at(self, now: float) -> float:
        """Return when the next step is due, after one at `now`."""
        self.now = now
        return self.head.step(now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def _open(self, positions: Sequence[Any] | None) -> SourceReader:
        context = ReaderContext(
            job="job", operator="source", subtask=0, parallelism=1, wake=lambda: None, started_at=100.0,
            clock=self.clock,
        )  # fmt: skip
        reader: SourceReader = self._source.reader(context)
        return reader


def test_one_step_for_each_block() -> None:
    rig = Rig()
    assert [rig.step_at(now) for now in (100.0, 110.0, 120.0)] == [110.0, 120.0, 130.0]
    assert rig.output.notes == [0, 1, 2]


def test_a_late_source_gives_its_blocks_without_a_wait() -> None:
    rig = Rig()
    assert [rig.step_at(125.0) for _ in range(3)] == [MORE, MORE, 130.0]
    assert rig.output.notes == [0, 1, 2]


def test_a_source_ends_after_its_last_block() -> None:
    rig = Rig(rows=1)
    assert [rig.step_at(100.0) for _ in range(2)] == [MORE, END]


def test_markers_leave_between_two_blocks() -> None:
    rig = Rig(marker_interval=4.0)
    assert [rig.step_at(now) for now in (100.0, 104.0, 108.0, 110.0)] == [104.0, 108.0, 110.0, 112.0]
    assert rig.output.notes == ["marker", 0, "marker", "marker", 1]


def test_a_marker_that_became_due_meanwhile_leaves_at_once() -> None:
    rig = Rig(marker_interval=4.0)
    rig.output.on_rows = lambda: rig.pass_time(5.0)
    assert rig.step_at(100.0) == MORE
    assert rig.step_at(105.0) == 109.0
    assert rig.output.notes == ["marker", 0, "marker"]


def test_a_source_is_idle_between_two_blocks() -> None:
    rig = Rig(idle_timeout=2.0)
    assert [rig.step_at(now) for now in (100.0, 101.5, 102.0, 110.0)] == [100.5, 102.0, 110.0, 110.5]
    assert rig.output.notes == [0, "idle", "active", 1]


def test_a_source_that_became_idle_meanwhile_says_so_at_once() -> None:
    rig = Rig(idle_timeout=2.0)
    rig.output.on_rows = lambda: rig.pass_time(3.0)
    assert rig.step_at(100.0) == MORE
    assert rig.step_at(103.0) == 110.0
    assert rig.output.notes == [0, "idle"]


def test_rows_of_a_trickle_are_read_in_bursts() -> None:
    rig = Rig(rate=1000, bursts=ReadBursts())
    assert rig.step_at(100.0005) == pytest.approx(100.001, abs=1e-6)
    assert rig.step_at(100.0015) == pytest.approx(100.02, abs=1e-6)
    assert rig.output.notes == [0, 1], "the first rows do not wait"
    assert rig.step_at(100.004) == pytest.approx(100.02, abs=1e-6)
    assert rig.output.notes == [0, 1], "a wake-up does not end the rest"
    assert rig.step_at(100.0201) == pytest.approx(100.04, abs=1e-6)
    assert rig.output.notes == list(range(21))


def test_rows_that_come_after_a_pause_do_not_wait() -> None:
    rig = Rig(bursts=ReadBursts())
    assert [rig.step_at(now) for now in (100.0, 110.0, 120.0)] == [110.0, 120.0, 130.0]
    assert rig.output.notes == [0, 1, 2]


def test_a_wake_up_without_rows_is_no_burst() -> None:
    rig = Rig(rate=25, bursts=ReadBursts())
    assert rig.step_at(100.0005) == pytest.approx(100.04, abs=1e-6)
    assert rig.step_at(100.0395) == pytest.approx(100.04, abs=1e-6), "row 1 is not due"
    assert rig.step_at(100.0401) == pytest.approx(100.08, abs=1e-6)
    assert rig.output.notes == [0, 1]


def test_a_source_of_many_rows_does_not_rest() -> None:
    rig = Rig(rate=2_000_000, bursts=ReadBursts())  # blocks of 2000 rows, 1 ms each
    rig.step_at(100.0)
    due = [rig.step_at(100.001)]
    for _ in range(20):
        due.append(rig.step_at(due[-1] + 1e-6))
    assert [later - earlier for earlier, later in pairwise(due)] == pytest.approx([0.001] * 20)


def test_a_source_of_many_rows_that_starts_late_does_not_rest_when_it_has_caught_up() -> None:
    rig = Rig(rate=2_000_000, bursts=ReadBursts())
    while (due := rig.step_at(100.0151)) == MORE:
        pass
    assert due == pytest.approx(100.016)


class Polled(SourceReader):
    """A reader without a schedule: `next_read` is the time of its next look."""

    def read(self) -> pa.RecordBatch:
        return numbers(7, 1)

    def next_read(self) -> float:
        return 1e9

    def position(self) -> None: ...


def test_a_reader_without_a_schedule_is_read_until_it_has_no_rows() -> None:
    output = Noted()
    head = SourceHead(
        lambda _: Polled(), schema=numbers(0, 0).schema, plain=None, watermarks=None, idle_timeout=None,
        output=output, context=OperatorContext("job", "source", 0, 1, 1),
    )  # fmt: skip
    assert [head.step(0.0), head.step(0.0)] == [MORE, MORE]
    assert output.notes == [7, 7]


class Writer(IdleWriter):
    """A writer that notes barriers among the rows."""

    def __init__(self, notes: list[object]) -> None:
        self._notes = notes

    def on_time(self, now: float) -> None: ...

    def write_barrier(self, barrier: CheckpointBarrier) -> None:
        self._notes.append("barrier")


class TaskRig(Rig):
    """The task of the source, after its operators have opened."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = Writer(self.output.notes)
        parts: dict[str, Any] = {"operators": [], "writers": [self.writer], "mailbox": Box()}
        self.task = Task("source[0]", self.head, opened=lambda: None, clocks=self.clocks, **parts)
        writers: list[Any] = [self.writer]
        self.barriers = TaskBarriers("source[0]", [], writers, lambda part: None, self.clocks)
        self.task.add_timed(self.barriers)
        self.task._begin()
        for _ in ("it opens", "it begins"):
            assert self.task.turn(self.now) == MORE

    def turn_at(self, now: float) -> float:
        self.now = now
        return self.task.turn(now)


def test_one_turn_for_each_block() -> None:
    rig = TaskRig()
    assert [rig.turn_at(now) for now in (100.0, 110.0)] == [110.0, 120.0]
    assert (rig.output.notes, rig.task.waits_for) == ([0, 1], Wait.INPUT)


def test_a_barrier_does_not_wait_for_the_next_block() -> None:
    rig = TaskRig()
    rig.output.on_rows = lambda: rig.barriers.inject(CheckpointBarrier(1, 0))
    assert rig.turn_at(100.0) <= 100.0
    assert rig.turn_at(100.0) == 110.0
    assert rig.output.notes == [0, "barrier"]


def test_a_barrier_comes_before_a_block_that_is_due() -> None:
    rig = TaskRig()
    rig.turn_at(100.0)
    rig.barriers.inject(CheckpointBarrier(1, 0))
    assert rig.turn_at(110.0) == 120.0
    assert rig.output.notes == [0, "barrier", 1]


def test_a_task_whose_output_is_full_waits_for_the_output() -> None:
    rig = TaskRig()

    def fill() -> None:
        rig.writer.is_available = False

    rig.output.on_rows = fill
    assert rig.turn_at(100.0) == MORE
    assert (rig.turn_at(100.0), rig.task.waits_for) == (WAIT, Wait.OUTPUT_SOFT)
    rig.writer.is_available = True
    assert (rig.turn_at(105.0), rig.task.waits_for) == (110.0, Wait.INPUT)
    assert rig.output.notes == [0]
