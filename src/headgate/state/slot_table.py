"""`SlotTable`: a hash table over NumPy arrays that finds the slots of a whole batch of keys at once.

Slots are the numbers 0, 1, 2 ... New keys get the next slots; the new keys of one batch get them in any order. The
table uses open addressing: each place holds a slot or is empty. The table knows only hashes and slots. The subclass
stores the keys, and decides whether two keys are equal.

The table searches for all rows of a batch together, in rounds. A row is done when its slot is found. Rows with new keys
claim an empty place: each row writes its number there, and the last written number wins. Equal keys of one batch
therefore get one slot without sorting.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from headgate.errors import DataError
from headgate.records.canonical import Bools, Int64s, UInt64s

#: The smallest table has 2**13 places, 32 KiB. With few keys it is nearly empty, so most rows need one look-up.
_LEAST_BITS = 13
#: Slots are 32-bit numbers.
_MOST_KEYS = (1 << 31) - 1
#: The table is at most half full: most keys then need two rounds, and the slowest key of a batch about ten.
_PLACES_PER_KEY = 2
Keys = TypeVar("Keys")


class SlotTable(ABC, Generic[Keys]):
    """A table that maps keys to slots. `Keys` is the type of a batch of keys. Only one thread may use a table."""

    def __init__(self) -> None:
        self._count = 0
        self._reset(0)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the table and its keys take."""
        return self._places.nbytes

    @abstractmethod
    def _matches(self, keys: Keys, rows: Int64s | None, slots: Int64s) -> Bools:
        """Return for each of these rows whether its key equals the key in its slot. Hashes are not compared.

        If `rows` is None, it means all rows. A slot may be -1; the answer for such a row does not matter.
        """

    @abstractmethod
    def _append(self, keys: Keys, rows: Int64s) -> None:
        """Store the keys of these rows in the next slots. The keys are all different."""

    @abstractmethod
    def _hashes(self) -> UInt64s:
        """Return the hashes of all stored keys, in the order of slots."""

    def _find_or_add(self, keys: Keys, hashes: UInt64s) -> Int64s:
        """Return the slot of each row's key; new keys get new slots."""
        if self._count == 0:
            slots = np.full(len(hashes), -1)
            missed = np.arange(len(hashes))
        else:
            slots = self._places.take(self._home(hashes)).astype(np.int64)
            matched = self._matches(keys, None, slots)
            matched &= slots >= 0
            missed = np.flatnonzero(~matched)
        if len(missed):
            self._probe(keys, hashes, missed, slots)
        return slots

    def _find_known(self, keys: Keys, hashes: UInt64s) -> Int64s:
        """Return the slot of each row's key, or -1 if the key is unknown. Nothing is added."""
        if self._count == 0:
            return np.full(len(hashes), -1)
        slots = self._places.take(self._home(hashes)).astype(np.int64)
        rows = np.flatnonzero((slots >= 0) & ~self._matches(keys, None, slots))
        hashes = hashes.take(rows)
        place, step = self._home(hashes), self._step(hashes)
        while len(rows):
            place = (place + step) & self._mask
            held = self._places.take(place).astype(np.int64)
            slots[rows] = held
            missed = np.flatnonzero((held >= 0) & ~self._matches(keys, rows, held))
            rows, place, step = rows[missed], place[missed], step[missed]
        return slots

    def _probe(self, keys: Keys, hashes: UInt64s, rows: Int64s, slots: Int64s) -> None:
        """Find or make the slots of the rows that did not match in their home place, and write them into `slots`."""
        hashes = hashes.take(rows)
        place, step = self._home(hashes), self._step(hashes)
        while len(rows):
            held = self._places.take(place)
            empty = np.flatnonzero(held < 0)
            if len(empty):
                if not self._make_room(len(empty)):
                    place, step = self._home(hashes), self._step(hashes)
                    continue
                self._claim(keys, rows[empty], place[empty])
                held = self._places.take(place)
            slots[rows] = held
            missed = np.flatnonzero(~self._matches(keys, rows, slots.take(rows)))
            rows, hashes, step = rows[missed], hashes[missed], step[missed]
            place = (place[missed] + step) & self._mask

    def _claim(self, keys: Keys, rows: Int64s, place: Int64s) -> None:
        """Store new keys in empty places. If several rows want the same place, one row wins."""
        numbers = np.arange(len(rows), dtype=np.int32)
        self._places[place] = numbers
        won = np.flatnonzero(self._places.take(place) == numbers)
        self._append(keys, rows[won])
        self._places[place[won]] = np.arange(self._count, self._count + len(won))
        self._count += len(won)

    def _home(self, hashes: UInt64s) -> Int64s:
        """Return the place where the search for each hash begins."""
        return (hashes >> self._shift).view(np.int64)

    def _step(self, hashes: UInt64s) -> Int64s:
        """Return by how many places each hash moves in a round.

        This is double hashing: the step comes from other bits of the hash than the home place. An odd step visits
        every place.
        """
        return (hashes.view(np.int64) & self._mask) | 1

    def _make_room(self, more: int) -> bool:
        """Make room for `more` keys. Returns whether they fitted without a change.

        If not, the table has grown, and all places that the caller holds are wrong.
        """
        if _PLACES_PER_KEY * (self._count + more) <= len(self._places):
            return True
        if self._count + more > _MOST_KEYS:
            raise DataError(f"one subtask cannot hold more than {_MOST_KEYS} keys; raise the parallelism")
        self._reset(self._count + more)
        self._index_all()
        return False

    def _reset(self, keys: int) -> None:
        """Empty the table, and give it room for `keys` keys."""
        bits = max((_PLACES_PER_KEY * keys - 1).bit_length(), _LEAST_BITS)
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self._places: npt.NDArray[np.int32] = np.full(1 << bits, -1, np.int32)

    def _index_all(self) -> None:
        """Enter all stored keys into an empty table. The keys are all different."""
        hashes, slots = self._hashes(), np.arange(self._count, dtype=np.int32)
        place = self._home(hashes)
        step = self._step(hashes)
        while len(slots):
            free = np.flatnonzero(self._places.take(place) < 0)
            self._places[place[free]] = slots[free]
            rest = np.flatnonzero(self._places.take(place) != slots)
            slots, step = slots[rest], step[rest]
            place = (place[rest] + step) & self._mask

    def _restart(self) -> None:
        """Enter all keys again, after the subclass has replaced them by `_count` different keys.

        The table keeps at least a quarter of its places, because the next window often brings as many keys as before.
        """
        self._reset(max(self._count, len(self._places) // (4 * _PLACES_PER_KEY)))
        self._index_all()
