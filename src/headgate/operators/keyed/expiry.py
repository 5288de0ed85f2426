"""`Expiry`: schedules the removal of old values: it holds the keys to check in a few buckets of processing time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

#: A value is removed at most this part of its time to live after its end (1/8), but buckets have 0.1 s (in
#: microseconds) at least.
_SHARE: Final = 8
_LEAST: Final = 100_000
#: How many keys one call of `take_due` returns at most; checking them takes about 10 ms.
_MOST: Final = 10_000


class Expiry:
    """The schedule of one state with a `ttl` in microseconds.

    It watches each slot for the oldest value only, so it holds at most one entry for each slot.
    """

    def __init__(self, ttl: int) -> None:
        self._ttl = ttl
        self._grain = max(ttl // _SHARE, _LEAST)
        self._buckets: dict[int, list[int]] = {}
        self._watched: set[int] = set()

    def watch(self, slot: int, written: int) -> None:
        """Watch a slot for a value that was written at this time, unless the slot is watched already."""
        if slot not in self._watched:
            self._watched.add(slot)
            self._buckets.setdefault((written + self._ttl) // self._grain + 1, []).append(slot)

    @property
    def next(self) -> int | None:
        """When the next slots are due, in microseconds of processing time; None for never."""
        return min(self._buckets) * self._grain if self._buckets else None

    def take_due(self, now: int) -> Iterator[int]:
        """Yield due slots, up to 10,000 of them, and stop watching each."""
        remaining = _MOST
        for bucket in sorted(bucket for bucket in self._buckets if bucket * self._grain <= now):
            slots = self._buckets[bucket]
            while slots and remaining:
                remaining -= 1
                slot = slots.pop()
                self._watched.discard(slot)
                yield slot
            if not slots:
                del self._buckets[bucket]

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Change slots to their new `numbers`, by old slot. Slots without a new number are removed."""
        self._watched = {numbers[slot] for slot in self._watched if slot in numbers}
        for bucket, slots in self._buckets.items():
            self._buckets[bucket] = [numbers[slot] for slot in slots if slot in numbers]
