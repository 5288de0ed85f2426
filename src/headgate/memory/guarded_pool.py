"""The pool of an output whose queues have no limit. A request fails at once when no segment is free."""

from __future__ import annotations

from headgate.errors import InsufficientBuffers
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.segment import MemorySegment


class GuardedPool(LocalBufferPool):
    """A `LocalBufferPool` whose requests raise when no segment is free. The job then fails before memory runs out."""

    __slots__ = ()

    def request_many(self, count: int, subpartition: int = 0, *, overdraft: bool = False) -> list[MemorySegment]:
        """Return at least one and at most `count` segments.

        Raises InsufficientBuffers when the pool's whole share is in use.
        """
        segments = super().request_many(count, subpartition, overdraft=overdraft)
        if count > 0 and not segments:
            raise InsufficientBuffers(
                f"{self.owner} has {self.in_use} buffers of {self.segment_size} bytes queued, its whole share of "
                f"network memory, because its consumer is slower than its producer and flow_control='unbounded' "
                f"does not slow the producer down. Raise network_memory, slow the source down, or use "
                f"flow_control='credit'"
            )
        return segments
