"""Computes new slots after a compaction, and picks one row for each slot. Slots are numbers from 0 without gaps."""

from __future__ import annotations

import numpy as np

from headgate.records.canonical import Int64s
from headgate.state.growable import Growable


def renumbering(kept: Int64s, size: int) -> Int64s:
    """Return the new slot of each of `size` old slots: its position in `kept`, or -1 if it was removed."""
    numbers = np.full(size, -1)
    numbers[kept] = np.arange(len(kept))
    return numbers


class OneRowPerSlot:
    """Picks one row for each slot, without sorting.

    All rows of a slot write their number to the same place. The last write wins.
    """

    def __init__(self) -> None:
        self._owner = Growable(np.int32)

    @property
    def nbytes(self) -> int:
        return self._owner.nbytes

    def pick(self, slots: Int64s, size: int) -> Int64s:
        """Return one row number for each different slot. The row numbers ascend.

        `slots` has the slot of each row. All slots are below `size`.
        """
        if size > len(self._owner):
            self._owner.resize(size)
        rows = np.arange(len(slots), dtype=np.int32)
        self._owner.values[slots] = rows
        return np.flatnonzero(self._owner.values.take(slots) == rows)
