"""The exclusive segments of a gate's channels, in one stack.

A channel has a right to a number of segments, not to particular segments. Arriving data can therefore go into the
segment that was recycled last, which is still in the processor's cache. (In Flink each channel has its own segments.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate.memory.network_pool import NetworkBufferPool
from headgate.memory.segment import MemorySegment


class ExclusiveBuffers:
    """The stack of segments that the network pool lends to `owner`.

    Any thread may use it without a lock. A list's `pop` and `extend` are atomic, and a channel never takes more
    segments than it has reserved or put back.
    """

    __slots__ = ("_free", "_indices", "_network_pool", "_owner")

    def __init__(self, network_pool: NetworkBufferPool, owner: str) -> None:
        self._network_pool = network_pool
        self._owner = owner
        self._free: list[MemorySegment] = []
        self._indices: set[int] = set()

    def reserve(self, count: int) -> None:
        """Request `count` segments for a new channel. Raises InsufficientBuffers."""
        segments = self._network_pool.request_exclusive(count, self._owner)
        self._indices.update([segment.index for segment in segments])
        self._free.extend(segments)

    def owns(self, segment: MemorySegment) -> bool:
        """Return whether a segment is an exclusive one of this gate, free or in use."""
        return segment.index in self._indices

    def separate(self, segments: Iterable[MemorySegment]) -> tuple[list[MemorySegment], list[MemorySegment]]:
        """Return the exclusive segments of this gate, and the other ones, each in their order."""
        indices = self._indices
        own: list[MemorySegment] = []
        others: list[MemorySegment] = []
        for segment in segments:
            (own if segment.index in indices else others).append(segment)
        return own, others

    @property
    def free(self) -> int:
        """The number of segments in the stack."""
        return len(self._free)

    def take(self, count: int) -> list[MemorySegment]:
        """Take the `count` segments that came back last."""
        free = self._free
        return [free.pop() for _ in range(count)]

    def put(self, segments: Sequence[MemorySegment]) -> None:
        """Put back segments whose data are consumed."""
        self._free.extend(segments)

    def give_back(self, segments: Sequence[MemorySegment]) -> None:
        """Return taken segments to the network pool, because their channel no longer needs them."""
        self._indices.difference_update([segment.index for segment in segments])
        self._network_pool.recycle_exclusive(segments, self._owner)
