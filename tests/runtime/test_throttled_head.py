"""The source gate: when a source with a throttle reads, and what its task does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa
import pytest

from headgate.connectors.connector import SourceReader
from headgate.connectors.watermarks import WatermarkGenerator
from headgate.memory.memory_guard import MemoryGuard
from headgate.operators.operator import OperatorContext
from headgate.runtime.task.chain import Chained
from headgate.runtime.task.clocks import Clocks
from headgate.runtime.task.heads import END, MORE, WAIT, SourceHead
from headgate.runtime.task.throttled_head import ThrottledSourceHead
from headgate.runtime.task.time_account import Wait
from headgate.runtime.taskmanager.throttling.batch_throttling import BatchedHead
from headgate.runtime.taskmanager.throttling.stored_output import StoredOutput
from headgate.throttle.spark_pid import PidSource

SCHEMA = pa.schema({"at": pa.timestamp("us")})
IDLE_TIMEOUT = 1.0


class Recorded(Chained):
    """An output that notes the rows and the statuses that it gets."""

    def __init__(self) -> None:
        self.rows = 0
        self.statuses: list[bool] = []

    def emit(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None:
        self.statuses.append(active)


class Reader(SourceReader):
    """A source of the batches in `ready`."""

    def __init__(self) -> None:
        self.ready: list[pa.RecordBatch] = []

    def read(self) -> pa.RecordBatch | None:
        return self.ready.pop(0) if self.ready else None

    def position(self) -> int:
        return 0


class Gate:
    """A policy that permits reading from `opens_at` on, and notes what it is told."""

    def __init__(self) -> None:
        self.opens_at = 0.0
        self.emissions: list[tuple[float, int]] = []

    def permit(self, now: float) -> float:
        return self.opens_at

    def emitted(self, now: float, rows: int) -> None:
        self.emissions.append((now, rows))


class Rig:
    """A throttled source whose time the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.output, self.reader, self.gate = Recorded(), Reader(), Gate()
        clock = lambda: self.now  # noqa: E731
        self.source = SourceHead(
            self._open,
            schema=SCHEMA,
            plain=None,
            watermarks=WatermarkGenerator("at", SCHEMA, idle_timeout=IDLE_TIMEOUT, clock=clock),
            idle_timeout=IDLE_TIMEOUT,
            output=self.output,
            context=OperatorContext("job", "source", 0, 1, 1),
            clocks=Clocks(clock, clock),
        )
        self.head = ThrottledSourceHead(self.source, self.gate, clock)

    def _open(self, positions: Sequence[object] | None) -> SourceReader:
        return self.reader

    def give(self, rows: int) -> None:
        self.reader.ready.append(pa.RecordBatch.from_arrays([pa.array([0] * rows, pa.timestamp("us"))], schema=SCHEMA))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_batch_passes_whole_and_its_rows_are_reported(rig: Rig) -> None:
    rig.give(500)
    assert rig.head.step(rig.now) == MORE
    assert rig.output.rows == 500
    assert rig.gate.emissions == [(100.0, 500)]


def test_nothing_is_read_before_the_permitted_time(rig: Rig) -> None:
    rig.give(5)
    rig.gate.opens_at = 107.0
    assert rig.head.step(rig.now) == 107.0
    assert rig.head.waits_for is Wait.THROTTLED
    assert rig.output.rows == 0
    rig.now = 107.0
    assert rig.head.step(rig.now) == MORE
    assert rig.output.rows == 5


def test_a_read_without_rows_is_not_reported(rig: Rig) -> None:
    rig.head.step(rig.now)
    assert rig.head.waits_for is Wait.INPUT
    assert rig.gate.emissions == []


def test_a_throttled_source_is_not_idle_and_its_idle_clock_stands(rig: Rig) -> None:
    rig.give(1)
    rig.head.step(rig.now)
    rig.gate.opens_at = 150.0
    rig.head.step(rig.now)
    rig.now = 150.0
    rig.head.step(rig.now)
    assert rig.output.statuses == [], "it could not read for 50 s, and has had no time without rows"
    rig.now = 150.0 + IDLE_TIMEOUT
    rig.head.step(rig.now)
    assert rig.output.statuses == [False]


def test_the_idle_clock_stands_too_while_a_source_of_batches_waits_for_its_rate(rig: Rig) -> None:
    head = BatchedHead(
        rig.source,
        cast(PidSource, rig.gate),
        lambda: 0,
        lambda batch, rows: None,
        StoredOutput(MemoryGuard(1 << 20, lambda: 0.0), None),
    )

    def statuses() -> list[bool]:
        """Those that were sent when the head has passed on what it has stored."""
        head.release(0)
        while head.step(rig.now) == MORE:
            pass
        return rig.output.statuses

    rig.give(1)
    head.step(rig.now)
    rig.gate.opens_at = 150.0
    assert head.step(rig.now) == 150.0
    assert head.waits_for is Wait.THROTTLED
    head.on_backpressure(True, rig.now)
    rig.now = 120.0
    head.on_backpressure(False, rig.now)
    rig.now = 150.0
    head.step(rig.now)
    assert statuses() == []
    rig.now = 150.0 + IDLE_TIMEOUT
    head.step(rig.now)
    assert statuses() == [False]


def test_the_idle_clock_stands_when_back_pressure_ends_and_the_throttle_goes_on(rig: Rig) -> None:
    rig.give(1)
    rig.head.step(rig.now)
    rig.head.on_backpressure(True, rig.now)
    rig.gate.opens_at = 150.0
    rig.now = 110.0
    rig.head.on_backpressure(False, rig.now)
    rig.head.step(rig.now)
    rig.head.on_backpressure(True, rig.now)
    rig.now = 120.0
    rig.head.on_backpressure(False, rig.now)
    rig.now = 150.0
    rig.head.step(rig.now)
    assert rig.output.statuses == []


def test_the_idle_clock_runs_from_the_first_read_also_after_a_snapshot(rig: Rig) -> None:
    """A checkpoint may come before the first read, and then opens the reader."""
    rig.source.snapshot()
    rig.head.step(rig.now)
    rig.now += IDLE_TIMEOUT
    rig.head.step(rig.now)
    assert rig.output.statuses == [False]


def test_a_held_source_waits_for_the_checkpoint_and_a_drained_one_ends_at_once(rig: Rig) -> None:
    rig.gate.opens_at = 1000.0
    rig.head.step(rig.now)
    rig.source.is_held = True
    assert rig.head.step(rig.now) == WAIT
    assert rig.head.waits_for is Wait.CHECKPOINT
    rig.source.ends_now = True
    assert rig.head.step(rig.now) == END


def test_messages_name_the_splits_that_hold_back_the_watermark_at_most_five(rig: Rig) -> None:
    assert rig.source.split_now() == (None, None), "there is no reader yet"
    assert rig.source.split_silence is None
    rig.reader.open_splits, rig.reader.rows_by_split = range(9), [(0, 1)]
    rig.give(1)
    rig.head.step(rig.now)
    assert rig.source.split_now() == ("split 1, split 2, split 3, split 4, split 5, 3 more", False)
    rig.reader.open_splits = [0]
    rig.give(1)
    rig.head.step(rig.now)
    assert rig.source.split_now() == ("split 0", True)
    rig.now += IDLE_TIMEOUT / 2
    assert rig.source.split_silence == IDLE_TIMEOUT / 2
    rig.reader.open_splits = ()
    rig.give(0)
    rig.head.step(rig.now)
    assert rig.source.split_now() == (rig.reader.split_name(), None), "no split is open"


@pytest.mark.parametrize("opens_at", [0.0, 200.0], ids=["back-pressure", "a throttle"])
def test_a_split_is_silent_too_while_its_source_may_not_read(rig: Rig, opens_at: float) -> None:
    rig.reader.open_splits, rig.reader.rows_by_split = [0], [(0, 1)]
    rig.give(1)
    rig.head.step(rig.now)
    rig.gate.opens_at = opens_at
    rig.head.step(rig.now)
    rig.head.on_backpressure(not opens_at, rig.now)
    rig.now += 20.0
    assert rig.source.split_now() == ("split 0", True), "it is not idle"
    assert rig.source.split_silence == 20.0
