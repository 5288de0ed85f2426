"""The pool of an output whose queues have no limit: no task waits for a segment of it, and when there is none, it is an
error."""

from __future__ import annotations

from headgate.errors import InsufficientBuffers
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.segment import MemorySegment


class GuardedPool(LocalBufferPool):
    """As `LocalBufferPool`; but a request that finds nothing ends the job, before memory does."""

    __slots__ = ()

    def request_many(self, count: int, subpartition: int = 0, *, overdraft: bool = False) -> list[MemorySegment]:
        """Up to `count` segments, at least one. Raises InsufficientBuffers when all of the pool's share is in use."""
        segments = super().request_many(count, subpartition, overdraft=overdraft)
        if count > 0 and not segments:
            raise InsufficientBuffers(
                f"{self.owner} has {self.in_use} buffers of {self.segment_size} bytes queued, all it may have, and "
                f"flow_control='unbounded' holds no producer back: what reads them is too slow; raise network_memory, "
                f"slow down the source, or let flow_control be 'credit'"
            )
        return segments
