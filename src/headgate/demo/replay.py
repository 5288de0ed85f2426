"""A source played back in event time: a row comes when it came then, `speedup` times as fast."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from headgate.connectors.base import ReaderContext, Source, SourceReader

#: Rows come in groups of this length of wall time, seconds: smooth to the eye, and no batch of one row.
_STEP = 0.02


class Replay(Source):
    """`inner`'s rows at their time. Its splits are in the order of `column`; `first` is the earliest time of all."""

    def __init__(self, inner: Source, column: str, first: datetime, speedup: float) -> None:
        self.schema = inner.schema
        self.bounded = inner.bounded
        self._inner = inner
        self._column = column
        self._first = (first - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        self._speedup = speedup

    def prepare(self) -> None:
        self._inner.prepare()

    def reader(self, context: ReaderContext) -> SourceReader:
        return _ReplayReader(self._inner.reader(context), self, context)

    def due(self, batch: pa.RecordBatch, started_at: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """When each row of `batch` is to come, seconds since the epoch, in a job that started at `started_at`."""
        times = batch.column(self._column).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        due: np.ndarray[tuple[int], np.dtype[np.float64]] = started_at + (times - self._first) / (1e6 * self._speedup)
        return np.maximum.accumulate(due)


class _ReplayReader(SourceReader):
    """Holds a batch of the inner reader back and gives out what is due of it."""

    def __init__(self, inner: SourceReader, replay: Replay, context: ReaderContext) -> None:
        self._inner = inner
        self._replay = replay
        self._context = context
        self._held: pa.RecordBatch | None = None
        self._due = np.empty(0)
        self._given = 0
        self.finished = inner.finished

    def read(self) -> pa.RecordBatch | None:
        if self._held is None:
            self._held = self._inner.read()
            if self._held is None:
                self.finished = self._inner.finished
                return None
            self._due = self._replay.due(self._held, self._context.started_at)
            self._given = 0
            self.split = self._inner.split
        end = int(np.searchsorted(self._due, self._context.clock(), side="right"))
        ready = self._held.slice(self._given, end - self._given)
        self._given = end
        if end == len(self._due):
            self._held = None
        return ready if ready.num_rows else None

    def next_read(self) -> float | None:
        if self._held is None:
            return self._inner.next_read()
        return max(float(self._due[self._given]), self._context.clock() + _STEP)

    def close(self) -> None:
        self._inner.close()
