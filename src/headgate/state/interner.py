"""`Interner`: maps byte strings to ids and back. Ids are numbers from 0 without gaps.

The interner stores each distinct string once, in NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Bools, Int64s, PackedBytes, UInt64s, flat_ranges, tail_words, unpack
from headgate.records.hashing import hash_bytes
from headgate.state.growable import Growable
from headgate.state.slot_table import SlotTable


class Interner(SlotTable[PackedBytes]):
    """A table of byte strings. The id of a string is its slot.

    Tests pass a bad `hashing` to show that two strings with one hash stay different.
    """

    def __init__(self, hashing: Callable[[PackedBytes], UInt64s] = hash_bytes) -> None:
        super().__init__()
        self._hashing = hashing
        self._first, self._second = Growable(np.uint64), Growable(np.uint64)
        self._lengths, self._tail_starts = Growable(np.int64), Growable(np.int64)
        self._tail = Growable(np.uint64)

    @property
    def nbytes(self) -> int:
        arrays = (self._first, self._second, self._lengths, self._tail_starts, self._tail)
        return super().nbytes + sum(array.nbytes for array in arrays)

    def find_or_add(self, packed: PackedBytes) -> Int64s:
        """Return the id of each string; new strings get new ids."""
        return self._find_or_add(packed, self._hashing(packed))

    def known_ids(self, packed: PackedBytes) -> Int64s:
        """Return the id of each string, or -1 if it is unknown. Nothing is added."""
        return self._find_known(packed, self._hashing(packed))

    def strings(self, ids: Int64s, nulls: Bools | None, kind: pa.DataType) -> pa.Array:
        """Return the strings of these ids as a column of type `kind`, null where `nulls` is true."""
        return unpack(self._packed().take(ids), nulls, kind)

    def frozen(self) -> Interner:
        """Return a copy for a snapshot. Only the copy's method `strings` may be used."""
        reader = Interner()
        reader._first, reader._second = self._first.shared(), self._second.shared()
        reader._lengths, reader._tail_starts = self._lengths.shared(), self._tail_starts.shared()
        reader._tail = self._tail.shared()
        return reader

    def keep(self, ids: Int64s) -> None:
        """Keep only the strings with these ids, which are all different. Their new ids are 0, 1, 2 ... in order."""
        kept = self._packed().take(ids)
        self._first.replace(kept.first)
        self._second.replace(kept.second)
        self._lengths.replace(kept.lengths)
        self._tail_starts.replace(kept.tail_starts)
        self._tail.replace(kept.tail)
        self._count = len(ids)
        self._restart()

    def _packed(self) -> PackedBytes:
        arrays = (self._first, self._second, self._lengths, self._tail_starts, self._tail)
        first, second, lengths, tail_starts, tail = (array.values for array in arrays)
        return PackedBytes(first, second, lengths, tail_starts, tail)  # type: ignore[arg-type]

    def _matches(self, keys: PackedBytes, rows: Int64s | None, slots: Int64s) -> Bools:
        wanted = keys if rows is None else keys.take(rows)
        same: Bools = self._first.values.take(slots) == wanted.first
        same &= self._second.values.take(slots) == wanted.second
        same &= self._lengths.values.take(slots) == wanted.lengths
        if len(wanted.tail):
            self._compare_tails(wanted, slots, same)
        return same

    def _compare_tails(self, wanted: PackedBytes, slots: Int64s, same: Bools) -> None:
        """Set `same` to false where two strings have the same head and length, but different tails."""
        rows = np.flatnonzero(same & (tail_words(wanted.lengths) > 0) & (slots >= 0))
        counts = tail_words(wanted.lengths.take(rows))
        here, starts = flat_ranges(wanted.tail_starts.take(rows), counts)
        there, _ = flat_ranges(self._tail_starts.values.take(slots.take(rows)), counts)
        different = np.flatnonzero(wanted.tail.take(here) != self._tail.values.take(there))
        if len(different):
            same[rows[np.searchsorted(starts, different, side="right") - 1]] = False

    def _append(self, keys: PackedBytes, rows: Int64s) -> None:
        added = keys.take(rows)
        self._tail_starts.append(added.tail_starts + len(self._tail))
        self._tail.append(added.tail)
        self._first.append(added.first)
        self._second.append(added.second)
        self._lengths.append(added.lengths)

    def _hashes(self) -> UInt64s:
        return self._hashing(self._packed())
