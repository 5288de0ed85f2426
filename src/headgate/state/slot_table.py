"""Open addressing over NumPy arrays: finds the slots of a whole batch of keys at once, and gives new keys new slots.

Slots are the numbers 0, 1, 2 ...: new keys get the next ones, those of one batch in any order. The table knows hashes
and slots only; what a key is, and whether two are equal, the subclass says. All rows of a batch probe together, round
after round, and those that are settled drop out; new keys claim an empty place by writing their number there and
looking who is left, so equal keys of one batch meet in one slot without being sorted first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from headgate.errors import DataError
from headgate.records.canonical import Bools, Int64s, UInt64s

#: 32 KiB: a table of few keys is then nearly empty, and settles most batches at the first look.
_LEAST_BITS = 13
#: Slots are 32-bit numbers.
_MOST_KEYS = (1 << 31) - 1
#: At most half full: a lookup then takes two rounds for most keys, and some ten for the last one of a batch.
_PLACES_PER_KEY = 2
Keys = TypeVar("Keys")


class SlotTable(ABC, Generic[Keys]):
    """Keys, in batches of type `Keys`, to slots; a table is used by one thread."""

    def __init__(self) -> None:
        self._count = 0
        self._reset(0)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held by the table and the keys in it."""
        return self._places.nbytes

    @abstractmethod
    def _matches(self, keys: Keys, rows: Int64s | None, slots: Int64s) -> Bools:
        """Whether the keys of these rows (None: all) are those in the slots; true equality, never that of hashes.

        A slot may be -1; the answer for it does not matter.
        """

    @abstractmethod
    def _append(self, keys: Keys, rows: Int64s) -> None:
        """Store the keys of these rows, which are all different, as the next slots."""

    @abstractmethod
    def _hashes(self) -> UInt64s:
        """The hashes of all stored keys, in the order of slots."""

    def _find_or_add(self, keys: Keys, hashes: UInt64s) -> Int64s:
        """The slot of each row's key; keys that are not there yet are added."""
        if self._count == 0:
            slots = np.full(len(hashes), -1)
            missed = np.arange(len(hashes))
        else:
            slots = self._places.take(self._home(hashes)).astype(np.int64)
            found = self._matches(keys, None, slots)
            found &= slots >= 0
            missed = np.flatnonzero(~found)
        if len(missed):
            self._probe(keys, hashes, missed, slots)
        return slots

    def _find_known(self, keys: Keys, hashes: UInt64s) -> Int64s:
        """The slot of each row's key, -1 where it is not there; nothing is added."""
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
        """Settle the rows that the first look did not, writing into `slots`."""
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
        """Of the rows that want the same empty place one wins, and its key is stored there."""
        mine = np.arange(len(rows), dtype=np.int32)
        self._places[place] = mine
        won = np.flatnonzero(self._places.take(place) == mine)
        self._append(keys, rows[won])
        self._places[place[won]] = np.arange(self._count, self._count + len(won))
        self._count += len(won)

    def _home(self, hashes: UInt64s) -> Int64s:
        return (hashes >> self._shift).view(np.int64)

    def _step(self, hashes: UInt64s) -> Int64s:
        """Double hashing, by other bits than the home place's: odd, so it visits every place."""
        return (hashes.view(np.int64) & self._mask) | 1

    def _make_room(self, more: int) -> bool:
        """True when that many keys more fit; else the table has grown and places must be looked up again."""
        if _PLACES_PER_KEY * (self._count + more) <= len(self._places):
            return True
        if self._count + more > _MOST_KEYS:
            raise DataError(f"one subtask cannot hold more than {_MOST_KEYS} keys; raise the parallelism")
        self._reset(self._count + more)
        self._index_all()
        return False

    def _reset(self, keys: int) -> None:
        """An empty table with room for so many keys."""
        bits = max((_PLACES_PER_KEY * keys - 1).bit_length(), _LEAST_BITS)
        self._mask = (1 << bits) - 1
        self._shift = np.uint64(64 - bits)
        self._places: npt.NDArray[np.int32] = np.full(1 << bits, -1, np.int32)

    def _index_all(self) -> None:
        """Enter all stored keys, known to be different, into an empty table."""
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
        """The subclass has replaced its keys by `_count` different ones: enter them all.

        The table does not shrink at once to what they need, for the next window often brings as many again.
        """
        self._reset(max(self._count, len(self._places) // (4 * _PLACES_PER_KEY)))
        self._index_all()
