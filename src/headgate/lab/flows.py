"""The lab's source: chosen subtasks make flows of rows for subtasks of the next operator, paced or at full speed.

The load is open loop: with a rate, row i is due at t0 + i / rate, also if its source was held back. So the time that a
source loses counts in the latency of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader

#: `due` is when the row should leave, in microseconds since the epoch (at full speed: when the row was made). `source`
#: is the subtask that made the row, `to` the subtask that gets the row. The payload gives rows a typical size.
PAYLOAD = 104
SCHEMA = pa.schema([("due", pa.int64()), ("source", pa.int64()), ("to", pa.int64()), ("payload", pa.binary(PAYLOAD))])
ROW_BYTES = 3 * 8 + PAYLOAD
BATCH_ROWS = 1024

_US = 1_000_000
#: Seconds by which a source may be late without having been held back.
_LATE = 0.1


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A part of a flow: its rows are due at `rate` rows/s for `seconds`."""

    seconds: float
    rate: float


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows for the subtasks `to` of the next operator, in turn, at `rate` rows/s. None means full speed.

    `phases` come first, one after the other, with rates of their own; then comes `rate`. A paced batch has `batch_rows`
    rows. None means the rows of a millisecond. With `ends_on_time`, a paced source that was held back does not catch up
    after its end: the rows that are due and not read are left out.
    """

    to: tuple[int, ...]
    rate: float | None = None
    phases: tuple[LoadPhase, ...] = ()
    batch_rows: int | None = None
    ends_on_time: bool = False


class Flows(Source):
    """A source of flows by subtask, for `seconds` from the job's start. Subtasks without a flow make no rows."""

    schema = SCHEMA
    replayable = False

    def __init__(self, flows: Mapping[int, Flow], seconds: float) -> None:
        self.flows = dict(flows)
        self.seconds = seconds

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return the reader of the subtask's flow."""
        flow = self.flows.get(context.subtask)
        return _EmptyReader() if flow is None else _FlowReader(flow, self.seconds, context)


def by_target(batch: pa.RecordBatch, _subtasks: int) -> npt.NDArray[np.int64]:
    """Return the target subtask of each row, for `partition_by`."""
    targets: npt.NDArray[np.int64] = batch.column("to").to_numpy()
    return targets


class _EmptyReader(SourceReader):
    finished = True

    def read(self) -> pa.RecordBatch | None:
        return None

    def position(self) -> None:
        """Return None: the source is not replayable."""


class _FlowReader(SourceReader):
    """A reader of the rows that are due, up to a batch. If it is late, it reads full batches until it has caught up."""

    def __init__(self, flow: Flow, seconds: float, context: ReaderContext) -> None:
        self._rate = flow.rate
        self._clock = context.clock
        self._start = context.started_at
        self._end = context.started_at + seconds
        self._last_read = self._end + _LATE if flow.ends_on_time else math.inf
        self._row = 0
        #: The seconds and the rows at which each phase begins, and the end.
        self._knots = _knots(flow, seconds)
        self._rows = None if flow.rate is None else int(self._knots[1][-1])
        #: A paced batch spans a millisecond, like the batches of `generate`.
        self._step = BATCH_ROWS if flow.rate is None else min(BATCH_ROWS, max(1, int(flow.rate / 1000)))
        if flow.batch_rows is not None:
            self._step = flow.batch_rows
        self._source: Any = pa.array(np.full(BATCH_ROWS, context.subtask))
        self._to: Any = pa.array(np.resize(np.array(flow.to), BATCH_ROWS))
        body = pa.py_buffer(np.arange(BATCH_ROWS * PAYLOAD).astype(np.uint8))
        self._payload: Any = pa.Array.from_buffers(pa.binary(PAYLOAD), BATCH_ROWS, [None, body])

    def read(self) -> pa.RecordBatch | None:
        now = self._clock()
        if self._rows is None:
            self.finished = now >= self._end
            return None if self.finished else self._batch(np.full(BATCH_ROWS, round(now * _US)))
        assert self._rate is not None
        n = min(self._step, self._rows - self._row) if now < self._last_read else 0
        if not n or now < self._due(self._row + n - 1):
            self.finished = not n
            return None
        first, self._row = self._row, self._row + n
        due = round(self._start * _US) + self._due_us(np.arange(first, first + n))
        return self._batch(due)

    def position(self) -> None:
        """Return None: the source is not replayable."""

    def next_read(self) -> float | None:
        assert self._rows is not None
        return self._due(min(self._row + self._step, self._rows) - 1)

    def _due(self, row: int) -> float:
        if len(self._knots[1]) == 2:
            assert self._rate is not None
            return self._start + row / self._rate
        return self._start + float(self._seconds(np.array([row]))[0])

    def _due_us(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if len(self._knots[1]) == 2:
            assert self._rate is not None
            return (rows * (_US / self._rate)).astype(np.int64)
        return (self._seconds(rows) * _US).astype(np.int64)

    def _seconds(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return when rows are due, in seconds since the start."""
        seconds, at = self._knots
        return np.interp(rows, at, seconds)

    def _batch(self, due: npt.NDArray[np.int64]) -> pa.RecordBatch:
        n = len(due)
        return pa.RecordBatch.from_arrays(
            [pa.array(due), *(column.slice(0, n) for column in (self._source, self._to, self._payload))], schema=SCHEMA
        )


def _knots(flow: Flow, seconds: float) -> tuple[list[float], list[float]]:
    times, rows = [0.0], [0.0]
    rest = seconds - sum(phase.seconds for phase in flow.phases)
    for phase in (*flow.phases, LoadPhase(max(0.0, rest), flow.rate or 0.0)):
        times.append(times[-1] + phase.seconds)
        rows.append(rows[-1] + phase.seconds * phase.rate)
    return times, rows
