"""RotatingMap: a map whose entries expire after a time, with one clock tick for all, as Storm's `RotatingMap`."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RotatingMap(Generic[K, V]):
    """A map of two *buckets*. Each `rotate` drops the entries of the older one.

    If the caller rotates every T seconds, an entry expires T to 2 T seconds after it was put.

    >>> map = RotatingMap()
    >>> map.put("key", 1)
    >>> map.rotate(), map.rotate()
    ({}, {'key': 1})
    """

    def __init__(self) -> None:
        self._buckets: deque[dict[K, V]] = deque([{}, {}])

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def get(self, key: K) -> V | None:
        return next((bucket[key] for bucket in self._buckets if key in bucket), None)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key. The key does not expire before two more rotations."""
        newest, older = self._buckets
        older.pop(key, None)
        newest[key] = value

    def pop(self, key: K) -> V | None:
        """Remove a key. Return its value, or None if it is not there."""
        return next((bucket.pop(key) for bucket in self._buckets if key in bucket), None)

    def rotate(self) -> dict[K, V]:
        """Remove and return the entries that have expired."""
        expired = self._buckets.pop()
        self._buckets.appendleft({})
        return expired
