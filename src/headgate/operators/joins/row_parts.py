"""`RowParts`: rows in a few batches, so that many rows need not be copied when a few are added to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.compat import concat_batches
from headgate.records.canonical import Int64s, as_arrow

#: Neighbouring batches that together have more rows or bytes are not made into one. Fewer batches make it faster to
#: take rows.
_MOST_ROWS: Final = 1 << 17
_MOST_BYTES: Final = 1 << 26
#: A slice is copied if it keeps this many times its own bytes in memory. A batch is copied if it has more than this
#: part of `_MOST_ROWS` or `_MOST_BYTES`: its memory may be the mapped file of a message, and a process can have few of
#: them. Smaller batches are soon joined.
_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class RowParts:
    """Rows in batches. Row `starts[i] + k` is row k of `batches[i]`. `keys` has the key columns of all rows."""

    batches: tuple[pa.RecordBatch, ...]
    keys: pa.RecordBatch
    starts: Int64s

    @classmethod
    def of(cls, rows: pa.RecordBatch, keys: Sequence[int]) -> RowParts:
        """Return the rows of one batch. `keys` has the positions of its key columns."""
        is_large = _SHARE * rows.num_rows > _MOST_ROWS or _SHARE * rows.nbytes > _MOST_BYTES
        if is_large or rows.get_total_buffer_size() > _SHARE * rows.nbytes:
            rows = rows.take(as_arrow(np.arange(rows.num_rows)))
        return cls((rows,), rows.select(list(keys)), np.zeros(1, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[RowParts]) -> RowParts:
        """Return the rows of several parts, one after another."""
        batches = tuple(_joined([batch for part in parts for batch in part.batches]))
        if len(batches) == 1:
            keys = batches[0].select(parts[0].keys.schema.names)
        else:
            keys = concat_batches([part.keys for part in parts])
        ends = np.cumsum([batch.num_rows for batch in batches])
        return cls(batches, keys, np.concatenate([np.zeros(1, np.int64), ends[:-1]]))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """The size in memory. The keys of a single batch are its own columns."""
        keys = 0 if len(self.batches) == 1 else self.keys.nbytes
        return int(sum(batch.nbytes for batch in self.batches) + keys)

    def split(self, at: Int64s) -> Iterator[tuple[pa.RecordBatch, Int64s, Any]]:
        """Yield for each batch that has some of the rows `at`: the batch, the rows' positions in it, and their places
        in `at`, as an index.

        >>> parts = RowParts.of(pa.record_batch({"n": [0, 1, 2]}), keys=[0])
        >>> [(batch.num_rows, rows.tolist()) for batch, rows, places in parts.split(np.array([2, 0]))]
        [(3, [2, 0])]
        """
        if len(self.batches) == 1:
            yield self.batches[0], at, slice(None)
            return
        of_row = np.searchsorted(self.starts, at, "right") - 1
        order = np.argsort(of_row, kind="stable")
        numbers = of_row.take(order)
        begin = 0
        for end in [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(order)] if len(order) else ():
            places, number = order[begin:end], int(numbers[begin])
            yield self.batches[number], at.take(places) - self.starts[number], places
            begin = end

    def taken(self, at: Int64s) -> tuple[RowParts, Int64s]:
        """Return only the rows `at`, in another order, and their new numbers."""
        names, numbers = self.keys.schema.names, np.empty(len(at), np.int64)
        parts: list[RowParts] = []
        begin = 0
        for batch, rows, places in self.split(at):
            taken = batch.take(as_arrow(rows))
            parts.append(RowParts((taken,), taken.select(names), np.zeros(1, np.int64)))
            numbers[places] = np.arange(begin, begin + len(rows))
            begin += len(rows)
        return RowParts.joined(parts), numbers


def _joined(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in fewer batches."""
    some: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if some and (rows > _MOST_ROWS or size > _MOST_BYTES):
            yield concat_batches(some)
            some, rows, size = [], batch.num_rows, batch.nbytes
        some.append(batch)
    yield concat_batches(some)
