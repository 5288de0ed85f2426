"""A hash table of keys that are one or more 64-bit words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.records.canonical import Bools, Int64s, UInt64s
from headgate.records.hashing import hash_words
from headgate.state.growable import Growable
from headgate.state.slot_table import SlotTable

_LEAST_RANGE = 1 << 16


class DenseCache:
    """Slots of small non-negative words by direct indexing: a cache in front of the table for ids and counters.

    It reaches as far as four times the keys there are (at least 65,536), so it never dominates memory.
    """

    def __init__(self) -> None:
        self._slots = np.full(0, -1, np.int32)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes

    def find(self, words: Int64s, keys: int) -> Int64s | None:
        """Slots, -1 for words not seen yet; None when some word is out of reach."""
        if not len(words) or int(words.min()) < 0:
            return None
        largest = int(words.max())
        if largest >= len(self._slots) and not self._reach(largest, keys):
            return None
        return self._slots.take(words).astype(np.int64)

    def put(self, words: Int64s, slots: Int64s) -> None:
        self._slots[words] = slots

    def clear(self) -> None:
        self._slots = np.full(0, -1, np.int32)

    def _reach(self, largest: int, keys: int) -> bool:
        if largest >= max(4 * keys, _LEAST_RANGE):
            return False
        grown = np.full(max(1 << largest.bit_length(), _LEAST_RANGE), -1, np.int32)
        grown[: len(self._slots)] = self._slots
        self._slots = grown
        return True


class WordTable(SlotTable[Sequence[Int64s]]):
    """Keys of `width` words, as `width` arrays."""

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self._columns = [Growable(np.int64) for _ in range(width)]
        self._dense = DenseCache()

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._dense.nbytes + sum(column.nbytes for column in self._columns)

    def column(self, index: int = 0) -> Int64s:
        """One word of every key, by slot. A view, good until the next change of the table."""
        return self._columns[index].values

    def slots(self, *words: Int64s) -> Int64s:
        """The slot of each row; keys that are new get new ones."""
        if len(self._columns) > 1:
            return self.find_or_add(words, hash_words(words))
        (word,) = words
        slots = self._dense.find(word, len(self))
        if slots is None:
            return self.find_or_add(words, hash_words(words))
        if int(slots.min()) < 0:
            unseen = np.flatnonzero(slots < 0)
            fresh = word.take(unseen)
            slots[unseen] = self.find_or_add((fresh,), hash_words((fresh,)))
            self._dense.put(fresh, slots[unseen])
        return slots

    def known_slots(self, *words: Int64s) -> Int64s:
        """The slot of each row, -1 for keys that are not there; nothing is added."""
        return self.find_known(words, hash_words(words))

    def replace(self, words: Sequence[Int64s]) -> None:
        """Hold these keys, all different, as slots 0, 1, 2 ... and nothing else. The number of words may change."""
        self._columns = self._columns[: len(words)]
        self._columns += [Growable(np.int64) for _ in range(len(words) - len(self._columns))]
        for column, word in zip(self._columns, words, strict=True):
            column.replace(word)
        self._dense.clear()
        self._restart(len(words[0]))

    def _matches(self, keys: Sequence[Int64s], rows: Int64s | None, slots: Int64s) -> Bools:
        same: Bools | None = None
        for column, word in zip(self._columns, keys, strict=True):
            equal = column.values.take(slots) == (word if rows is None else word.take(rows))
            same = equal if same is None else np.logical_and(same, equal, out=same)
        assert same is not None
        return same

    def _append(self, keys: Sequence[Int64s], rows: Int64s) -> None:
        for column, word in zip(self._columns, keys, strict=True):
            column.append(word.take(rows))

    def _hashes(self) -> UInt64s:
        return hash_words([column.values for column in self._columns])
