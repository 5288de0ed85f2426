"""`RowStore` and `WaitingRows`: rows by number, and rows that wait for their event time."""

from __future__ import annotations

import copy

import numpy as np
import pyarrow as pa

from headgate.compat import concat_batches
from headgate.records.canonical import Int64s, as_arrow

#: Batches that together have at most so many rows become one, so that many tiny batches do not stay apart.
_SMALL = 2048
#: Parts that together have more bytes do not merge: 32-bit offsets of strings end at 2 GiB.
_MOST_BYTES = 1 << 29


class RowStore:
    """Rows with the numbers 0, 1, 2 ... It holds them in parts. A part merges with the part before it if it is at least
    half as long as that part."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[pa.RecordBatch] = []
        self._count = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows; they get the next numbers."""
        self._parts.append(rows)
        self._count += len(rows)
        while len(self._parts) > 1 and self._should_merge(*self._parts[-2:]):
            self._parts[-2:] = [concat_batches(self._parts[-2:])]
        self.nbytes = sum(int(part.nbytes) for part in self._parts)

    def take(self, numbers: Int64s) -> pa.RecordBatch:
        """Return the rows with these numbers, in this order."""
        if not self._parts:
            return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in self._schema.types], schema=self._schema)
        if len(self._parts) == 1:
            return self._parts[0].take(as_arrow(numbers))
        starts = np.cumsum([0, *map(len, self._parts)])
        part_of = np.searchsorted(starts, numbers, "right") - 1
        order = np.argsort(part_of, kind="stable")
        bounds = np.searchsorted(part_of.take(order), np.arange(len(starts)))
        sorted_numbers = numbers.take(order)
        taken = [
            part.take(as_arrow(sorted_numbers[bounds[at] : bounds[at + 1]] - starts[at]))
            for at, part in enumerate(self._parts)
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return concat_batches(taken).take(as_arrow(back))

    def frozen(self) -> RowStore:
        """Return a copy for a snapshot. Later changes of this object do not change it."""
        reader = copy.copy(self)
        reader._parts = self._parts.copy()
        return reader

    def keep(self, numbers: Int64s) -> None:
        """Keep only these rows. Their new numbers are 0, 1, 2 ... in this order."""
        rows = self.take(numbers)
        self._parts, self._count = [], 0
        self.add(rows)

    @staticmethod
    def _should_merge(before: pa.RecordBatch, last: pa.RecordBatch) -> bool:
        if before.nbytes + last.nbytes > _MOST_BYTES:
            return False
        return len(before) < 2 * len(last) or len(before) + len(last) <= _SMALL


class WaitingRows:
    """Rows that wait until event time has passed theirs. All times are in microseconds."""

    def __init__(self) -> None:
        self._parts: list[tuple[pa.RecordBatch, Int64s]] = []
        self.nbytes = 0

    def __len__(self) -> int:
        return sum(len(times) for _, times in self._parts)

    @property
    def parts(self) -> list[pa.RecordBatch]:
        """All rows."""
        return [rows for rows, _ in self._parts]

    def add(self, rows: pa.RecordBatch, times: Int64s) -> None:
        """Add rows with their event times."""
        if not len(rows):
            return
        if self._parts and len(self._parts[-1][0]) + len(rows) <= _SMALL:
            before, before_times = self._parts.pop()
            rows, times = concat_batches([before, rows]), np.concatenate([before_times, times])
        self._parts.append((rows, times))
        self._count_bytes()

    def take_before(self, time: int) -> tuple[list[pa.RecordBatch], Int64s]:
        """Remove the rows before `time`, and return them with their times, in the order in which they came."""
        ready, ready_times, kept = [], [np.zeros(0, np.int64)], []
        for rows, times in self._parts:
            due = times < time
            if due.all():
                ready.append(rows)
                ready_times.append(times)
            elif due.any():
                ready.append(rows.filter(as_arrow(due)))
                ready_times.append(times[due])
                kept.append((rows.filter(as_arrow(~due)), times[~due]))
            else:
                kept.append((rows, times))
        self._parts = kept
        self._count_bytes()
        return ready, np.concatenate(ready_times)

    def _count_bytes(self) -> None:
        self.nbytes = sum(int(rows.nbytes) + times.nbytes for rows, times in self._parts)
