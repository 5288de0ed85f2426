"""`LookupCache`: the rows that a lookup function returned, by key, with a size and a time to live."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, as_arrow
from headgate.state.growable import Growable
from headgate.state.keys import KeyTable

_NEVER = np.iinfo(np.int64).min


class LookupCache:
    """Rows by key. A key without a row is known too: its row has nulls, and `has_row` is False.

    Times are microseconds of the caller's clock. A key older than `ttl` counts as unknown. With a `ttl` of None, no key
    gets too old. If there are more than `size` keys, `trim` keeps only the newest `size` / 2.
    """

    def __init__(self, key_types: Sequence[pa.DataType], schema: pa.Schema, size: int, ttl: int | None) -> None:
        self._keys = KeyTable(key_types)
        self._schema = schema
        self._size = size
        self._ttl = ttl
        self._times = Growable(np.int64, _NEVER)
        #: For each slot, the number of its row in `_rows`.
        self._places = Growable(np.int64, 0)
        #: Batches of rows. Two neighbouring batches merge if the first has no more rows than the second, so there are
        #: few.
        self._rows: list[pa.RecordBatch] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        kept = sum(int(rows.nbytes) for rows in self._rows)
        return self._keys.nbytes + self._times.nbytes + self._places.nbytes + kept

    def missing(self, slots: Int64s, now: int) -> Int64s:
        """Return the slots, of those given, that have no row, or a row that is too old."""
        times = self._times.values.take(slots)
        oldest = _NEVER if self._ttl is None else now - self._ttl
        return slots[times <= oldest]

    def slots(self, columns: Sequence[pa.Array], rows: int) -> Int64s:
        """Return the slot of each row's key. New keys get slots without a row."""
        slots = self._keys.find_or_add(columns, rows)
        self._times.resize(len(self._keys))
        self._places.resize(len(self._keys))
        return slots

    def keys(self, slots: Int64s) -> list[pa.Array]:
        return self._keys.keys(slots)

    def put(self, slots: Int64s, rows: pa.RecordBatch, now: int) -> None:
        """Store row i of `rows` as the row of slot `slots[i]`. Their time to live begins at `now`."""
        self._times.values[slots] = now
        self._places.values[slots] = np.arange(self._count, self._count + rows.num_rows)
        self._count += rows.num_rows
        self._rows.append(rows)
        while len(self._rows) > 1 and self._rows[-2].num_rows <= self._rows[-1].num_rows:
            merged = pa.Table.from_batches(self._rows[-2:]).combine_chunks().to_batches()[0]
            self._rows[-2:] = [merged]

    def rows(self, slots: Int64s) -> pa.Table:
        """Return the row of each slot."""
        table = pa.Table.from_batches(self._rows, self._schema)
        return table.take(as_arrow(self._places.values.take(slots)))

    def trim(self) -> None:
        """Remove the oldest keys if there are more than `size`, or else replaced rows if they are more than half of all
        rows."""
        if len(self._keys) > self._size:
            live = np.argsort(self._times.values, kind="stable")[len(self._keys) - self._size // 2 :]
            live = np.sort(live)
            kept = self.rows(live).combine_chunks().to_batches()
            self._keys.compact(live)
            self._times.replace(self._times.values.take(live))
            self._places.replace(np.arange(len(live)))
            self._rows, self._count = kept, len(live)
        elif self._count > 2 * max(len(self._keys), 1024):  # rows that newer ones have replaced
            kept = self.rows(np.arange(len(self._keys))).combine_chunks().to_batches()
            self._places.replace(np.arange(len(self._keys)))
            self._rows, self._count = kept, len(self._keys)
