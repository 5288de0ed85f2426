"""`TimerQueue`: the timers of all keys. A timer is a pair of a time in microseconds and a key. Each pair exists at most
once."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Final

import numpy as np

from headgate.records.canonical import Int64s

#: About how many bytes Python needs for a timer.
_BYTES: Final = 250
#: The queue builds a new heap only if it has at least this many deleted timers.
_LEAST_DELETED: Final = 1024
#: The time in microseconds, and the slot (number) of the key.
Timer = tuple[int, int]


class TimerQueue:
    """A queue of timers, ordered by time.

    A deleted timer stays in the heap until its time comes, or until more than half of the heap is deleted timers.
    """

    def __init__(self) -> None:
        self._timers: set[Timer] = set()
        self._heap: list[Timer] = []

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def nbytes(self) -> int:
        return _BYTES * len(self._heap)

    @property
    def first(self) -> int | None:
        """The earliest time of a timer, or None if there are no timers."""
        while self._heap and self._heap[0] not in self._timers:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def add(self, timer: Timer) -> None:
        """Add a timer. Do nothing if the queue has it already."""
        if timer not in self._timers:
            self._timers.add(timer)
            heapq.heappush(self._heap, timer)

    def remove(self, timer: Timer) -> None:
        """Remove a timer. Do nothing if the queue does not have it."""
        self._timers.discard(timer)
        if len(self._heap) > 2 * len(self._timers) + _LEAST_DELETED:
            self._rebuild()

    def pop(self, until: int) -> Timer | None:
        """Remove and return the earliest timer. If this timer is after `until`, leave it and return None."""
        first = self.first
        if first is None or first > until:
            return None
        timer = heapq.heappop(self._heap)
        self._timers.discard(timer)
        return timer

    def next(self, most: int) -> Int64s:
        """Return the slots of up to `most` timers. Most of these are among the earliest timers."""
        return np.array([slot for _, slot in self._heap[:most]], np.int64)

    @property
    def slots(self) -> Int64s:
        """The slot of every timer."""
        return np.fromiter((slot for _, slot in self._timers), np.int64, len(self._timers))

    def copy(self) -> list[Timer]:
        return list(self._timers)

    def clear(self) -> None:
        self._timers.clear()
        self._heap.clear()

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Renumber the timers' slots: `numbers` gives the new slot of each old slot."""
        self._timers = {(time, numbers[slot]) for time, slot in self._timers}
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = list(self._timers)
        heapq.heapify(self._heap)
