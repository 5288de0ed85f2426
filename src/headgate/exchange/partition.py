"""ResultPartition: the output of one subtask on one edge, with a subpartition per consumer and one local pool."""

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
    """The output of one subtask on one edge. It copies bytes into segments and never waits.

    The partition calls `wake`, on any thread, when a segment comes back after an incomplete `write`. It also calls
    `wake` when a reader starves and the writer watches this reader. It calls `on_settled` when a consumer has processed
    all records or has left.

    With a `file` the partition is blocking: all data go to the file, and consumers read them when the partition is
    complete. `write` and `write_event` of a blocking partition raise SpillError when the disk refuses the data. With
    `compress`, the file holds a buffer in compressed form if this form is smaller.

    A subpartition is at its cap when it has `max_buffers_per_subpartition` segments.
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
        #: Whether the task flushes adaptively and has waited since its last batch. It then sends the next data itself.
        self.writer_rests = False

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

    def watch_barriers(self, callback: Callable[[], None]) -> None:
        """Call `callback`, on any thread, when a reader has polled a barrier that blocks it."""
        for subpartition in self.subpartitions:
            if isinstance(subpartition, PipelinedSubpartition):
                subpartition.on_barrier_left = callback

    def write(self, index: int, record: SpanningSerializer, *, overdraft: bool = False) -> bool:
        """Copy the remaining bytes of an element into segments of a subpartition. Returns whether all are copied.

        Bytes remain when no segment is free or the subpartition is at its cap. With `overdraft` the pool may exceed its
        share.
        """
        before = record.remaining
        subpartition = self.subpartitions[index]
        is_full_record = False
        while not is_full_record:
            builder = self._builders[index]
            if builder is None:
                if count := self._run_length(subpartition, record):
                    if not self._write_run(index, record, count, overdraft):
                        break
                    is_full_record = not record.remaining
                    continue
                builder = self._new_builder(index, overdraft)
                if builder is None:
                    break
                subpartition.add(builder.create_consumer())
            result = record.copy_to(builder)
            if result.is_full_buffer:
                builder.finish()
                self._builders[index] = None
            is_full_record = result.is_full_record
        self._announce(index)
        self.bytes_out += before - record.remaining
        return is_full_record

    def _run_length(self, subpartition: Subpartition, record: SpanningSerializer) -> int:
        """Return the number of segments that the rest of an element does not share with the next element.

        These are the segments that the rest fills. The last, partly filled segment also counts, so that the whole
        element can be sent at once. It does not count if its unused bytes exceed half of the segment or a third of the
        element's size. If the reader asks for buffers smaller than a segment, the number is 0.
        """
        size = self._segment_size
        if (subpartition.buffer_size or size) < size:
            return 0
        unused = -record.remaining % size
        has_own_end = 2 * unused <= size and 3 * unused <= record.size
        return (record.remaining + unused) // size if has_own_end else record.remaining // size

    def _write_run(self, index: int, record: SpanningSerializer, count: int, overdraft: bool) -> int:
        """Fill up to `count` segments with an element, and queue them as one buffer. Returns the number of segments.

        Readers see only the filled buffer.
        """
        segments = self._request(index, count, overdraft)
        if segments:
            size = record.fill([segment.view for segment in segments])
            self.subpartitions[index].add_filled(Buffer(segments, 0, size, self._recyclers[index]))
        return len(segments)

    def _request(self, index: int, count: int, overdraft: bool) -> list[MemorySegment]:
        """Return up to `count` segments within the subpartition's cap.

        If it returns none, the next segment that comes back wakes the task.
        """
        pool = self._pool
        segments = pool.request_many(min(count, self._cap - pool.outstanding(index)), index, overdraft=overdraft)
        if not segments:
            # Set the flag before the second request. Otherwise a segment that comes back in between wakes no task.
            self._wanting = True
            segments = pool.request_many(min(count, self._cap - pool.outstanding(index)), index, overdraft=overdraft)
            # The flag stays set even with enough segments: another subpartition may need it, and a wake does no harm.
        return segments

    def _new_builder(self, index: int, overdraft: bool) -> BufferBuilder | None:
        segments = self._request(index, 1, overdraft)
        if not segments:
            return None
        builder = BufferBuilder(segments[0], self._recyclers[index], self.subpartitions[index].buffer_size)
        self._builders[index] = builder
        return builder

    def write_event(self, index: int, event: Event) -> None:
        """Queue an event after all written data. An event takes no segment."""
        self._finish_builder(index)
        if isinstance(event, EndOfPartition):
            self.subpartitions[index].finish()
        else:
            self.subpartitions[index].add(EventConsumer(event))
            self._announce(index)

    def _announce(self, index: int) -> None:
        self._to_notify(index).announce()

    def _to_notify(self, index: int) -> Subpartition:
        """Return a subpartition that knows whether the task rests. Its reader may ask when it is notified."""
        subpartition = self.subpartitions[index]
        subpartition.writer_rests = self.writer_rests
        return subpartition

    def overtake(self, index: int, barrier: CheckpointBarrier) -> list[memoryview]:
        """Queue a barrier ahead of all queued data, and return a copy of the bytes that the barrier overtakes."""
        return _copied(self.subpartitions[index].overtake(barrier))

    def prioritise(self, index: int, checkpoint: int) -> list[memoryview] | None:
        """Let a checkpoint's queued barrier overtake the data before it, and return a copy of these data.

        Returns None when no such barrier is queued.
        """
        overtaken = self.subpartitions[index].prioritise(checkpoint)
        return None if overtaken is None else _copied(overtaken)

    def _finish_builder(self, index: int) -> None:
        builder, self._builders[index] = self._builders[index], None
        if builder is not None:
            builder.finish()

    def flush(self, index: int) -> None:
        """Make the unfinished buffer of a subpartition visible to its reader."""
        self._to_notify(index).flush()

    def release(self) -> None:
        """Drop all queued and unfinished buffers. Segments still being sent come back when they are recycled."""
        for index, subpartition in enumerate(self.subpartitions):
            self._finish_builder(index)
            subpartition.release()
        file, self._file = self._file, None
        if file is not None:
            file.release()

    @property
    def is_overdrawn(self) -> bool:
        """Whether the pool owns more segments than its share."""
        return self._pool.is_overdrawn

    def want_segments(self) -> None:
        """Let the next segment that comes back call `wake`.

        After this call the caller must check for free segments before it waits: a segment that came back earlier wakes
        no task.
        """
        self._wanting = True

    @property
    def is_settled(self) -> bool:
        """Whether all consumers have acknowledged that they have processed all records."""
        return all(subpartition.is_settled for subpartition in self.subpartitions)

    @property
    def is_consumed(self) -> bool:
        """Whether all consumers have left."""
        return all(subpartition.is_released for subpartition in self.subpartitions)

    def validate(self) -> None:
        """Raise AssertionError when a queue is invalid, or has more data buffers than the pool has lent to it.

        Call it while no thread writes or reads.
        """
        for index, subpartition in enumerate(self.subpartitions):
            subpartition.validate()
            charged = self._pool.outstanding(index)
            queued = subpartition.backlog if self._file is None else 0  # a buffer in a file takes no segment
            assert charged >= queued, f"{self.name}[{index}]: {queued} segments queued, {charged} charged"

    @property
    def queued_bytes(self) -> int:
        """The bytes that readers have not polled yet."""
        return sum(subpartition.queued_bytes for subpartition in self.subpartitions)

    @property
    def backlog(self) -> int:
        """The data buffers that readers have not polled yet."""
        return sum(subpartition.backlog for subpartition in self.subpartitions)

    @property
    def pool(self) -> LocalBufferPool:
        return self._pool

    def subpartition(self, index: int) -> Subpartition:
        return self.subpartitions[index]


def _copied(buffers: list[Buffer]) -> list[memoryview]:
    """Return copies of the bytes in buffers, and recycle the buffers."""
    copies = [memoryview(b"".join(buffer.views)) for buffer in buffers]
    for buffer in buffers:
        buffer.recycle()
    return copies
