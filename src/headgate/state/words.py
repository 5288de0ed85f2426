"""`WordTable`: a table of keys that are one or more 64-bit words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headgate.records.canonical import Bools, Int64s, UInt64s
from headgate.records.hashing import hash_words
from headgate.state.growable import Growable
from headgate.state.slot_table import SlotTable

#: The least number of places of a direct index.
_LEAST_REACH = 1 << 16
#: The most places of a direct index for each key; a place takes 4 bytes.
_PLACES_PER_KEY = 4


class DirectIndex:
    """An array of slots, indexed by words that are small and not negative. `WordTable` uses it for ids and counters, to
    avoid hashing."""

    def __init__(self) -> None:
        self._slots: npt.NDArray[np.int32] = np.full(0, -1, np.int32)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes

    def grow_to(self, words: Int64s, keys: int, most: int | None = None) -> bool:
        """Grow until all `words` fit, unless that takes too much memory for `keys` keys. Returns whether the words fit.

        A caller who gives `most` promises that every word is from 0 to `most`.
        """
        if not len(words):
            return True
        # A negative word is very large here, and does not fit.
        largest = int(words.view(np.uint64).max()) if most is None else most
        if largest >= max(_PLACES_PER_KEY * keys, _LEAST_REACH):
            return False
        if largest >= len(self._slots):
            grown = np.full(max(1 << largest.bit_length(), _LEAST_REACH), -1, np.int32)
            grown[: len(self._slots)] = self._slots
            self._slots = grown
        return True

    def find(self, words: Int64s) -> Int64s:
        """Return the slot of each word, or -1 if it is unknown. Call `grow_to` with these words first."""
        slots: Int64s = self._slots.take(words).astype(np.int64)
        return slots

    def known(self, words: Int64s) -> Int64s:
        """Return the slot of each word, or -1 if it is unknown. A word may be negative, or too large for the array."""
        slots = np.full(len(words), -1)
        inside: Int64s = np.flatnonzero((words >= 0) & (words < len(self._slots)))
        slots[inside] = self._slots.take(words.take(inside))
        return slots

    def put(self, words: Int64s, slots: Int64s) -> None:
        """Store the slot of each word. The words are all different."""
        self._slots[words] = slots

    def add(self, words: Int64s, begin: int) -> Int64s:
        """Give new words the slots `begin`, `begin` + 1 ... `words` may contain a word several times.

        Returns each different word once, in the order of slots.
        """
        numbers = np.arange(len(words), dtype=np.int32)
        self._slots[words] = numbers  # of equal words, the number of the last one stays
        different: Int64s = words[self._slots.take(words) == numbers]
        self._slots[different] = np.arange(begin, begin + len(different))
        return different


class WordTable(SlotTable[Sequence[Int64s]]):
    """A table of keys of `width` words each; a batch of keys is `width` arrays.

    While the keys are small numbers with few gaps, a direct index finds them. Otherwise the hash table does.
    """

    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self._columns = [Growable(np.int64) for _ in range(width)]
        self._direct = DirectIndex() if width == 1 else None
        self._look_again_at = 0
        self._formerly = 0

    @property
    def nbytes(self) -> int:
        direct = 0 if self._direct is None else self._direct.nbytes
        return super().nbytes + direct + sum(column.nbytes for column in self._columns)

    def column(self, index: int = 0) -> Int64s:
        """Return the word `index` of every key, by slot: a view, valid until the table changes."""
        return self._columns[index].values

    def find_or_add(self, *words: Int64s, most: int | None = None) -> Int64s:
        """Return the slot of each row; new keys get new slots.

        If the caller knows that no word is negative or above `most`, the table need not look at the words for this.
        """
        if self._direct is not None:
            if self._direct.grow_to(words[0], self._population(), most):
                return self._direct_slots(self._direct, words[0])
            self._index_by_hash()
        slots = self._find_or_add(words, hash_words(words))
        if len(self) >= self._look_again_at:
            self._index_directly()
        return slots

    def known_slots(self, *words: Int64s) -> Int64s:
        """Return the slot of each row, or -1 if its key is unknown. Nothing is added."""
        if self._direct is not None:
            return self._direct.known(words[0])
        return self._find_known(words, hash_words(words))

    def replace(self, words: Sequence[Int64s]) -> None:
        """Replace all keys by the given keys, which are all different. Their slots are 0, 1, 2 ...

        The number of words in a key may change.
        """
        self._formerly = len(self)
        self._columns = self._columns[: len(words)]
        self._columns += [Growable(np.int64) for _ in range(len(words) - len(self._columns))]
        for column, word in zip(self._columns, words, strict=True):
            column.replace(word)
        self._count = len(words[0])
        if not self._index_directly():
            self._index_by_hash()

    def frozen(self) -> WordTable:
        """Return a copy for a snapshot. Only the copy's method `column` may be used."""
        reader = WordTable(len(self._columns))
        reader._columns = [column.shared() for column in self._columns]
        return reader

    def _direct_slots(self, direct: DirectIndex, words: Int64s) -> Int64s:
        slots = direct.find(words)
        if len(slots) and int(slots.min()) < 0:
            unseen = np.flatnonzero(slots < 0)
            fresh = words.take(unseen)
            self._columns[0].append(direct.add(fresh, self._count))
            self._count = len(self._columns[0])
            slots[unseen] = direct.find(fresh)
        return slots

    def _index_directly(self) -> bool:
        """Change to a direct index if the keys allow it. Returns whether the table changed.

        If not, the table tries again when it has a quarter more keys.
        """
        self._look_again_at = len(self) + len(self) // 4 + 1
        if len(self._columns) > 1:
            return False
        direct = DirectIndex()
        if not direct.grow_to(self.column(), self._population()):
            return False
        direct.put(self.column(), np.arange(len(self)))
        self._direct = direct
        self._reset(0)
        return True

    def _index_by_hash(self) -> None:
        self._direct = None
        self._restart()

    def _population(self) -> int:
        """Return how many keys to expect: the number now or before the last replacement, whichever is larger.

        Keys that were removed often return.
        """
        return max(len(self), self._formerly)

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
