"""The pool of an output or input whose queues have no limit. A request fails at once when network memory is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.errors import NetworkMemoryFull
from headgate.memory.local_pool import GlobalPool, LocalBufferPool
from headgate.memory.lock import Lock
from headgate.memory.redistribution import PoolClaim
from headgate.memory.segment import MemorySegment


class GuardedPool(LocalBufferPool):
    """A `LocalBufferPool` that may use all segments of the TaskManager. The size of its share does not limit it.

    A request raises NetworkMemoryFull when it takes the last segment, so no task and no reader waits for a segment. The
    pool keeps its required segments. It returns all other segments to the network pool when they are free. `elapsed`
    returns the seconds since the job started; the error's message contains this time.
    """

    __slots__ = ("_elapsed",)
    is_limited = False

    def __init__(
        self,
        source: GlobalPool,
        lock: Lock,
        *,
        owner: str,
        claim: PoolClaim,
        subpartitions: int,
        elapsed: Callable[[], float],
    ) -> None:
        super().__init__(
            source,
            lock,
            owner=owner,
            claim=claim,
            subpartitions=subpartitions,
            max_per_subpartition=source.total_segments + 1,
            max_overdraft=0,
        )
        self._elapsed = elapsed

    def request_many(self, count: int, subpartition: int = 0, *, overdraft: bool = False) -> list[MemorySegment]:
        """Return at least one and at most `count` segments.

        Raises NetworkMemoryFull, and keeps no segment, when the request would take the last segment.
        """
        segments = super().request_many(count, subpartition, overdraft=overdraft)
        if count > 0 and not self.free:
            self.recycle_many(segments, subpartition)
            raise NetworkMemoryFull(
                f"out of memory at {self._elapsed():.1f} s: {self.owner} has {self.in_use} buffers of "
                f"{self.segment_size} bytes queued, and no buffer of network_memory is free. Its consumer is slower "
                f"than its producer, and flow_control='unbounded' does not slow the producer down. Raise "
                f"network_memory, limit the source's rate, or use flow_control='credit'"
            )
        return segments

    def recycle_many(self, segments: Sequence[MemorySegment], subpartition: int = 0) -> None:
        """Take back several segments of one subpartition. Return the surplus of free segments to the network pool."""
        super().recycle_many(segments, subpartition)
        for segment in self._surplus():
            self._global.give_back(segment)

    def _surplus(self) -> list[MemorySegment]:
        """Remove the free segments that exceed the required number from the pool, and return them."""
        with self._lock:
            kept = self.claim.required
            surplus = self._free[kept:]
            del self._free[kept:]
            self.requested -= len(surplus)
        return surplus

    def resize(self, size: int) -> list[MemorySegment]:
        """Ignore `size`: the pool's limit is the number of all segments of the TaskManager."""
        return super().resize(self._global.total_segments)
