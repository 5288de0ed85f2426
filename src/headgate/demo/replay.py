"""Replay a source in event time: rows arrive at the times in a column, but `speedup` times as fast."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.state import shapes

#: The least time between two batches, in seconds: short enough to look smooth, and long enough for more than one row.
_STEP = 0.02
_GIVEN = shapes.items(shapes.row(shapes.count, shapes.count))
_POSITION = shapes.fields({"inner": shapes.plain, "given": _GIVEN, "started_at": shapes.number(253_000_000_000.0)})


class Replay(Source):
    """A source that gives the rows of `inner` when they are due. Each split must be sorted by `column`. `first` is the
    earliest time of all rows."""

    def __init__(self, inner: Source, column: str, first: datetime, speedup: float) -> None:
        self.schema = inner.schema
        self.bounded = inner.bounded
        self._inner = inner
        self._column = column
        self._first = (first - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        self._speedup = speedup

    def prepare(self) -> None:
        self._inner.prepare()

    def prepared(self) -> Any:
        return self._inner.prepared()

    def restore(self, prepared: Any) -> None:
        self._inner.restore(prepared)

    def check_position(self, position: Any) -> None:
        """Raise ValueError unless a reader of this source can return the position."""
        _POSITION(position, "the position")
        self._inner.check_position(position["inner"])

    def reader(self, context: ReaderContext) -> SourceReader:
        return _ReplayReader(self._inner, self, context)

    def due(self, batch: pa.RecordBatch, started_at: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return when each row of `batch` is due, in seconds since 1970. The job started at `started_at`."""
        times = batch.column(self._column).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        due: np.ndarray[tuple[int], np.dtype[np.float64]] = started_at + (times - self._first) / (1e6 * self._speedup)
        return np.maximum.accumulate(due)


class _ReplayReader(SourceReader):
    """A reader that holds back a batch of the inner reader, and returns its rows when they are due.

    A position has two parts: the inner reader's position before the batch, and how many rows of each split the reader
    has given since that position.
    """

    def __init__(self, inner: Source, replay: Replay, context: ReaderContext) -> None:
        self._replay = replay
        self._context = context
        self._started_at = context.started_at
        #: By split, how many rows were given before a restart. The reader skips these rows when it reads them again.
        self._skip: dict[int, int] = {}
        if context.positions:
            self._started_at = context.positions[0]["started_at"]
            context = replace(context, positions=[position["inner"] for position in context.positions])
            given = (item for position in self._context.positions or () for item in position["given"])
            self._skip = {split: rows for split, rows in given if split % context.parallelism == context.subtask}
        self._inner = inner.reader(context)
        self._held: pa.RecordBatch | None = None
        self._position_before_held: Any = None
        self._due = np.empty(0)
        self._given = 0
        self.finished = self._inner.finished

    def read(self) -> pa.RecordBatch | None:
        if self._held is None:
            position = self._inner.position()
            self._held = self._inner.read()
            if self._held is None:
                self.finished = self._inner.finished
                return None
            self._hold(self._held, position)
        assert self._held is not None
        end = max(self._given, int(np.searchsorted(self._due, self._context.clock(), side="right")))
        ready = self._held.slice(self._given, end - self._given)
        self._given = end
        if end == len(self._due):
            self._held = None
            return ready
        return ready if ready.num_rows else None

    def _hold(self, batch: pa.RecordBatch, position: Any) -> None:
        self._due = self._replay.due(batch, self._started_at)
        self._position_before_held = position
        self.split = self._inner.split
        skip = self._skip.pop(self.split, 0)
        self._given = min(skip, batch.num_rows)
        if skip > self._given:
            self._skip[self.split] = skip - self._given

    def position(self) -> Any:
        held = [] if self._held is None else [(self.split, self._given)]
        return {
            "inner": self._inner.position() if self._held is None else self._position_before_held,
            "given": [*self._skip.items(), *held],
            "started_at": self._started_at,
        }

    def next_read(self) -> float | None:
        if self._held is None:
            return self._inner.next_read()
        return max(float(self._due[self._given]), self._context.clock() + _STEP)

    def lag(self) -> float:
        """Return by how much the next row is overdue. A reader that is held back does not know the next row: the last
        row that it gave then counts."""
        if self.finished or not len(self._due):
            return 0.0
        return max(0.0, self._context.clock() - float(self._due[min(self._given, len(self._due) - 1)]))

    def close(self) -> None:
        self._inner.close()
