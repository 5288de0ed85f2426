"""ResultPartition: the output of one subtask on one edge, a subpartition per consumer, segments from one local pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headgate.exchange.subpartition import EventConsumer, PipelinedSubpartition
from headgate.memory.buffer_builder import BufferBuilder
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment
from headgate.records.elements import Event


class ResultPartition:
    """Takes bytes from the task and never waits: `write` copies what fits into segments and says how much that was.

    `on_segment_free` is called, from any thread, after a `write` fell short and a segment has come back since.
    """

    def __init__(
        self,
        name: str,
        subpartitions: int,
        pool: LocalBufferPool,
        max_buffers_per_subpartition: int,
        lock_factory: LockFactory,
        on_segment_free: Callable[[], None],
    ) -> None:
        self.name = name
        self.subpartitions = [PipelinedSubpartition(index, lock_factory) for index in range(subpartitions)]
        self._pool = pool
        self._cap = max_buffers_per_subpartition
        self._on_segment_free = on_segment_free
        self._builders: list[BufferBuilder | None] = [None] * subpartitions
        self._recyclers = [self._recycler(index) for index in range(subpartitions)]
        self._wanting = False
        pool.on_available = pool.on_refill = self._segment_freed
        self.bytes_out = 0
        self.buffers_out = 0

    def _recycler(self, index: int) -> Callable[[MemorySegment], None]:
        def recycle(segment: MemorySegment) -> None:
            self._pool.recycle(segment, index)
            if self._wanting:
                self._segment_freed()

        return recycle

    def _segment_freed(self) -> None:
        if self._wanting:
            self._wanting = False
            self._on_segment_free()

    def write(self, index: int, data: memoryview) -> int:
        """Copy the head of `data` into the subpartition's segments; returns the bytes copied, fewer when no segment is
        free or the subpartition is at its cap."""
        done, size = 0, len(data)
        subpartition = self.subpartitions[index]
        while done < size:
            builder = self._builders[index]
            if builder is None:
                builder = self._new_builder(index)
                if builder is None:
                    break
                subpartition.add(builder.create_consumer(), announce=False)
            done += builder.append(data[done:] if done else data)
            if builder.is_full:
                builder.finish()
                self._builders[index] = None
        subpartition.announce()
        self.bytes_out += done
        return done

    def _new_builder(self, index: int) -> BufferBuilder | None:
        segment = self._pool.request(index) if self._pool.outstanding(index) < self._cap else None
        if segment is None:
            # Say that a segment is wanted before the last look, or one that comes back in between would wake nobody.
            self._wanting = True
            if self._pool.outstanding(index) < self._cap:
                segment = self._pool.request(index)
            if segment is None:
                return None
            # Still wanting, perhaps, for another subpartition; a word too many does no harm.
        builder = BufferBuilder(segment, self._recyclers[index])
        self._builders[index] = builder
        self.buffers_out += 1
        return builder

    def write_event(self, index: int, event: Event) -> None:
        """Queue an event behind all that was written; it takes no segment."""
        self._finish_builder(index)
        if event is Event.END_OF_PARTITION:
            self.subpartitions[index].finish()
        else:
            self.subpartitions[index].add(EventConsumer(event))

    def _finish_builder(self, index: int) -> None:
        builder, self._builders[index] = self._builders[index], None
        if builder is not None:
            builder.finish()

    def flush(self, index: int) -> None:
        self.subpartitions[index].flush()

    def release(self) -> None:
        """Close everything that is queued and being filled; segments still being sent come back by themselves."""
        for index, subpartition in enumerate(self.subpartitions):
            self._finish_builder(index)
            subpartition.release()

    @property
    def is_consumed(self) -> bool:
        """All consumers have taken leave."""
        return all(subpartition.is_released for subpartition in self.subpartitions)

    @property
    def pool(self) -> LocalBufferPool:
        return self._pool

    def subpartition(self, index: int) -> PipelinedSubpartition:
        return self.subpartitions[index]

    def queue_lengths(self) -> Sequence[int]:
        return [subpartition.queue_length for subpartition in self.subpartitions]
