"""The exclusive segments of a gate's channels, in one stack.

A channel has a right to a number of them, not to these or those: what arrives goes where data were last, however many
channels there are, and that memory is still in the processor's cache. (In Flink each channel has its own.)
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment


class ExclusiveBuffers:
    """Segments that the network pool lends to `owner`. Any thread, without a lock: a list's `pop` and `extend` are
    atomic, and a channel takes no more than it has reserved or put here."""

    __slots__ = ("_free", "_indices", "_network_pool", "_owner")

    def __init__(self, network_pool: NetworkBufferPool, owner: str) -> None:
        self._network_pool = network_pool
        self._owner = owner
        self._free: list[MemorySegment] = []
        self._indices: set[int] = set()

    def reserve(self, count: int) -> None:
        """`count` more, for one more channel. Raises InsufficientBuffers."""
        segments = self._network_pool.request_exclusive(count, self._owner)
        self._indices.update([segment.index for segment in segments])
        self._free.extend(segments)

    def owns(self, segment: MemorySegment) -> bool:
        """It is one of these, free or in use."""
        return segment.index in self._indices

    @property
    def free(self) -> int:
        """How many are here."""
        return len(self._free)

    def take(self, count: int) -> list[MemorySegment]:
        """Those that came back last."""
        free = self._free
        return [free.pop() for _ in range(count)]

    def put(self, segments: Sequence[MemorySegment]) -> None:
        """They are empty again."""
        self._free.extend(segments)

    def give_back(self, segments: Sequence[MemorySegment]) -> None:
        """A channel has no more use for these, which it has taken: the network pool may give them to anybody."""
        self._indices.difference_update([segment.index for segment in segments])
        self._network_pool.recycle_exclusive(segments, self._owner)
