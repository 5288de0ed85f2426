"""A source whose rate changes at the onset: it has more rows, all rows that it is asked for, or none any more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import headgate as hg
from tests.observe.faults import Slow, falls_silent, has_begun, pours, swells
from tests.observe.topologies import RATE, SCHEMA

#: How often a source looks whether it has rows, in seconds.
_LOOK = 0.1
#: How many times its rate a source has when it swells.
SWOLLEN = 4


class FlowSource(hg.Source):
    """Rows like those of `topologies.source`, which `splits` subtasks read, at `rate` rows/s together."""

    schema = SCHEMA
    bounded = False

    def __init__(self, slow: Slow, splits: int, *, rate: float = RATE, batch_rows: int = 50) -> None:
        self.slow = slow
        self.splits = splits
        self.rate = rate
        self.batch_rows = batch_rows

    def reader(self, context: hg.ReaderContext) -> hg.SourceReader:
        return _FlowReader(self, context)


class _FlowReader(hg.SourceReader):
    """The reader of one split. It gives a batch when the batch's last row is due."""

    def __init__(self, source: FlowSource, context: hg.ReaderContext) -> None:
        self._source = source
        self._clock = context.clock
        self._given = int(context.positions[context.subtask]) if context.positions else 0
        self._change_rate(source.rate / source.splits)
        self.split = context.subtask
        self._pours = False
        self.finished = context.subtask >= source.splits

    def read(self) -> pa.RecordBatch | None:
        if self.finished or not self._has_rows():
            return None
        numbers = np.arange(self._given, self._given + self._source.batch_rows)
        self._given += len(numbers)
        times = (numbers * 1e6 * self._source.splits / self._source.rate).astype(np.int64)
        columns = [pa.array(numbers % 97), pa.array(numbers), pa.array(times, pa.timestamp("us"))]
        batch = pa.record_batch(columns, schema=SCHEMA)
        return batch if self._pours else self._source.slow(batch)

    def next_read(self) -> float:
        """Return when the rows are due, or soon: a fault may begin before, or keep them back."""
        now = self._clock()
        return self._due() if now < self._due() < now + _LOOK else now + _LOOK

    def position(self) -> int:
        return self._given

    def _has_rows(self) -> bool:
        if self._pours:  # it costs no look at the folder for each batch
            return True
        slow = self._source.slow
        has_fault = slow.fault in (swells, pours, falls_silent) and has_begun(slow.folder)
        if has_fault and slow.fault is swells and self._rate == self._source.rate / self._source.splits:
            self._change_rate(SWOLLEN * self._rate)
        if has_fault and slow.fault is not swells:
            self._pours = slow.fault is pours
            return self._pours
        return self._clock() >= self._due()

    def _change_rate(self, rate: float) -> None:
        self._rate, self._since, self._before = rate, self._clock(), self._given

    def _due(self) -> float:
        return self._since + (self._given - self._before + self._source.batch_rows) / self._rate
