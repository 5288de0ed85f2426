"""`Expiry`: schedules the removal of expired values. It holds the keys to check in a few buckets of processing time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

#: A bucket covers 1/8 of the time to live, but at least 0.1 s (below in microseconds). A value is removed at most one
#: bucket after it expired.
_SHARE: Final = 8
_LEAST: Final = 100_000
#: The most keys that one call of `take_due` returns. To check 10,000 keys takes about 10 ms.
_MOST: Final = 10_000


class Expiry:
    """The schedule of one state with a `ttl` in microseconds.

    A slot is the number of a key. The schedule watches only the oldest value of each slot, so it has at most one entry
    per slot.
    """

    def __init__(self, ttl: int) -> None:
        self._ttl = ttl
        self._grain = max(ttl // _SHARE, _LEAST)
        self._buckets: dict[int, list[int]] = {}
        self._watched: set[int] = set()

    def watch(self, slot: int, written: int) -> None:
        """Watch a slot whose oldest value was written at `written`. A slot that is watched already stays as it is."""
        if slot not in self._watched:
            self._watched.add(slot)
            self._buckets.setdefault((written + self._ttl) // self._grain + 1, []).append(slot)

    @property
    def next(self) -> int | None:
        """Return the processing time, in microseconds, at which the next slots are due. None means never."""
        return min(self._buckets) * self._grain if self._buckets else None

    def take_due(self, now: int) -> Iterator[int]:
        """Yield up to 10,000 slots that are due, and stop watching them."""
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
        """Renumber the slots: `numbers` gives the new slot of each old slot. A slot without a new number is removed."""
        self._watched = {numbers[slot] for slot in self._watched if slot in numbers}
        for bucket, slots in self._buckets.items():
            self._buckets[bucket] = [numbers[slot] for slot in slots if slot in numbers]
