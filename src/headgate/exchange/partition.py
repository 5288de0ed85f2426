"""ResultPartition: the output of one subtask on one edge, a subpartition per consumer, segments from one local pool."""

from __future__ import annotations

from collections.abc import Callable

from headgate.exchange.blocking import BlockingSubpartition, Subpartition
from headgate.exchange.partition_file import PartitionFile
from headgate.exchange.subpartition import EventConsumer, PipelinedSubpartition
from headgate.memory.buffer import Buffer, Recycler
from headgate.memory.buffer_builder import BufferBuilder
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.lock import LockFactory
from headgate.memory.segment import MemorySegment
from headgate.records.events import CheckpointBarrier, EndOfPartition, Event
from headgate.records.spanning import SpanningSerializer


class ResultPartition:
    """Takes bytes from the task and never waits: `write` copies what fits into segments and says how much that was.

    `wake` is called, from any thread, after a `write` fell short and a segment has come back since, and when a reader
    is starved whose writer waited for that; `on_settled` when a consumer has processed all records, or has left.

    With a `file` the partition is a blocking one: all goes there, and is read from there when it is finished.
    """

    def __init__(
        self,
        name: str,
        subpartitions: int,
        *,
        pool: LocalBufferPool,
        max_buffers_per_subpartition: int,
        lock_factory: LockFactory,
        wake: Callable[[], None],
        on_settled: Callable[[], None],
        file: PartitionFile | None = None,
        compress: bool = False,
    ) -> None:
        self.name = name
        self._file = file
        self.subpartitions: list[Subpartition] = [
            PipelinedSubpartition(index, lock_factory, on_settled)
            if file is None
            else BlockingSubpartition(index, file, lock_factory, on_settled, compress=compress)
            for index in range(subpartitions)
        ]
        self._pool = pool
        self._cap = max_buffers_per_subpartition
        self._segment_size = pool.segment_size
        self._wake = wake
        self._builders: list[BufferBuilder | None] = [None] * subpartitions
        self._recyclers = [self._recycler(index) for index in range(subpartitions)]
        self._wanting = False
        for subpartition in self.subpartitions:
            subpartition.on_starved = wake
        pool.on_available = pool.on_refill = self._segment_freed
        self.bytes_out = 0

    def _recycler(self, index: int) -> Recycler:
        def recycle(*segments: MemorySegment) -> None:
            self._pool.recycle_many(segments, index)
            if self._wanting:
                self._segment_freed()

        return recycle

    def _segment_freed(self) -> None:
        if self._wanting:
            self._wanting = False
            self._wake()

    def watch_barriers(self, told: Callable[[], None]) -> None:
        """`told` is called, from any thread, when a reader has a barrier that went in order."""
        for subpartition in self.subpartitions:
            if isinstance(subpartition, PipelinedSubpartition):
                subpartition.on_barrier_left = told

    def write(self, index: int, record: SpanningSerializer, *, overdraft: bool = False) -> bool:
        """Copy what is left of an element into the subpartition's segments; returns whether that was all of it. It is
        not when no segment is free or the subpartition is at its cap. With `overdraft` the pool may go beyond its
        share."""
        before = record.remaining
        subpartition = self.subpartitions[index]
        is_full_record = False
        while not is_full_record:
            builder = self._builders[index]
            if builder is None and self._run_length(subpartition, record):
                if not self._write_run(index, record, overdraft):
                    break
                is_full_record = not record.remaining
                continue
            if builder is None:
                builder = self._new_builder(index, overdraft)
                if builder is None:
                    break
                subpartition.add(builder.create_consumer())
            result = record.copy_to(builder)
            if result.is_full_buffer:
                builder.finish()
                self._builders[index] = None
            is_full_record = result.is_full_record
        subpartition.announce()
        self.bytes_out += before - record.remaining
        return is_full_record

    def _run_length(self, subpartition: Subpartition, record: SpanningSerializer) -> int:
        """How many segments what is left of an element has to itself: those that it fills to the last byte, and one for
        its end unless that wastes more than half of it, or more than a third of the element's size. Such an end can be
        sent at once, and the element is in one piece all the way; a smaller one shares its segment with what follows.
        """
        size = self._segment_size
        if (subpartition.buffer_size or size) < size:
            return 0
        unused = -record.remaining % size
        has_own_end = 2 * unused <= size and 3 * unused <= record.size
        return (record.remaining + unused) // size if has_own_end else record.remaining // size

    def _write_run(self, index: int, record: SpanningSerializer, overdraft: bool) -> int:
        """Fill as many segments as the element has use for and the pool gives, in one step and as one buffer: no one
        needs to watch them being filled. Returns how many."""
        segments = self._request(index, self._run_length(self.subpartitions[index], record), overdraft)
        if segments:
            size = record.fill([segment.view for segment in segments])
            self.subpartitions[index].add_filled(Buffer(segments, 0, size, self._recyclers[index]))
        return len(segments)

    def _request(self, index: int, count: int, overdraft: bool) -> list[MemorySegment]:
        """Up to `count` segments within the subpartition's cap; none only when a later free segment will be
        announced."""
        pool = self._pool
        segments = pool.request_many(min(count, self._cap - pool.outstanding(index)), index, overdraft=overdraft)
        if not segments:
            # Say that a segment is wanted before the last look, or one that comes back in between would wake no task.
            self._wanting = True
            segments = pool.request_many(min(count, self._cap - pool.outstanding(index)), index, overdraft=overdraft)
            # Still wanting, if they are enough, perhaps for another subpartition; a word too many does no harm.
        return segments

    def _new_builder(self, index: int, overdraft: bool) -> BufferBuilder | None:
        segments = self._request(index, 1, overdraft)
        if not segments:
            return None
        builder = BufferBuilder(segments[0], self._recyclers[index], self.subpartitions[index].buffer_size)
        self._builders[index] = builder
        return builder

    def write_event(self, index: int, event: Event) -> None:
        """Queue an event behind all that was written; it takes no segment."""
        self._finish_builder(index)
        if isinstance(event, EndOfPartition):
            self.subpartitions[index].finish()
        else:
            self.subpartitions[index].add(EventConsumer(event))
            self.subpartitions[index].announce()

    def overtake(self, index: int, barrier: CheckpointBarrier) -> list[memoryview]:
        """Queue a barrier before everything that is queued; returns a copy of the bytes that it overtakes."""
        return _copied(self.subpartitions[index].overtake(barrier))

    def prioritise(self, index: int, checkpoint: int) -> list[memoryview] | None:
        """Have a checkpoint's queued barrier overtake what is before it; returns a copy of that, None when no such
        barrier is queued."""
        overtaken = self.subpartitions[index].prioritise(checkpoint)
        return None if overtaken is None else _copied(overtaken)

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
        file, self._file = self._file, None
        if file is not None:
            file.release()

    @property
    def is_overdrawn(self) -> bool:
        """The pool owns more than its share."""
        return self._pool.is_overdrawn

    def want_segments(self) -> None:
        """Have `wake` called for the next segment that comes back. The caller looks once more after this, and only then
        waits: what came back before wakes no task."""
        self._wanting = True

    @property
    def is_settled(self) -> bool:
        """All consumers have processed all records, or have left."""
        return all(subpartition.is_settled for subpartition in self.subpartitions)

    @property
    def is_consumed(self) -> bool:
        """All consumers have taken leave."""
        return all(subpartition.is_released for subpartition in self.subpartitions)

    def validate(self) -> None:
        """Raises AssertionError unless each queue is in order and each of its data buffers is a segment of the pool's
        that is charged to it; while no thread writes or reads."""
        for index, subpartition in enumerate(self.subpartitions):
            subpartition.validate()
            charged = self._pool.outstanding(index)
            queued = subpartition.backlog if self._file is None else 0  # what is in a file takes no segment
            assert charged >= queued, f"{self.name}[{index}]: {queued} segments queued, {charged} charged"

    @property
    def pool(self) -> LocalBufferPool:
        return self._pool

    def subpartition(self, index: int) -> Subpartition:
        return self.subpartitions[index]


def _copied(buffers: list[Buffer]) -> list[memoryview]:
    """The bytes in buffers, which are given back."""
    copies = [memoryview(b"".join(buffer.views)) for buffer in buffers]
    for buffer in buffers:
        buffer.recycle()
    return copies
