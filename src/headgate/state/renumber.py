"""Small helpers for dense slots."""

from __future__ import annotations

import numpy as np

from headgate.records.canonical import Int64s
from headgate.state.growable import Growable


def renumbering(kept: Int64s, size: int) -> Int64s:
    """For each of `size` old slots its place in `kept`, or -1."""
    numbers = np.full(size, -1)
    numbers[kept] = np.arange(len(kept))
    return numbers


class OneRowPerSlot:
    """Picks rows such that each slot occurs once, without sorting: rows write their number, and one is left."""

    def __init__(self) -> None:
        self._owner = Growable(np.int32)

    @property
    def nbytes(self) -> int:
        return self._owner.nbytes

    def pick(self, slots: Int64s, size: int) -> Int64s:
        """Ascending rows, one for each slot among `slots`, which are all below `size`."""
        if size > len(self._owner):
            self._owner.resize(size)
        rows = np.arange(len(slots), dtype=np.int32)
        self._owner.values[slots] = rows
        return np.flatnonzero(self._owner.values.take(slots) == rows)
