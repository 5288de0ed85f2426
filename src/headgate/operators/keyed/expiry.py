"""When values with a time to live are to be looked at: the keys that have some, in a few buckets of processing time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

#: A value is forgotten at the latest so much of its time to live, or so many microseconds, after it ended.
_SHARE: Final = 8
_LEAST: Final = 100_000
#: As many keys are looked at in one go, about 10 ms.
_MOST: Final = 10_000


class Expiry:
    """Each slot is watched for its oldest value alone, so this holds no more than there are slots."""

    def __init__(self, ttl: int) -> None:
        self._ttl = ttl
        self._grain = max(ttl // _SHARE, _LEAST)
        self._buckets: dict[int, list[int]] = {}
        self._watched: set[int] = set()

    def watch(self, slot: int, written: int) -> None:
        """Something of this slot was written at this time; what is watched already stays so."""
        if slot not in self._watched:
            self._watched.add(slot)
            self._buckets.setdefault((written + self._ttl) // self._grain + 1, []).append(slot)

    @property
    def next(self) -> int | None:
        """When the next slots are due."""
        return min(self._buckets) * self._grain if self._buckets else None

    def take_due(self, now: int) -> Iterator[int]:
        """Slots to look at, some of those that are due; they are watched no more."""
        left = _MOST
        for bucket in sorted(bucket for bucket in self._buckets if bucket * self._grain <= now):
            slots = self._buckets[bucket]
            while slots and left:
                left -= 1
                slot = slots.pop()
                self._watched.discard(slot)
                yield slot
            if not slots:
                del self._buckets[bucket]

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Slots have other numbers from now on; those that have none are gone."""
        self._watched = {numbers[slot] for slot in self._watched if slot in numbers}
        for bucket, slots in self._buckets.items():
            self._buckets[bucket] = [numbers[slot] for slot in slots if slot in numbers]
