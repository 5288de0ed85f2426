"""BlockingSubpartition: the output of one subtask for one consumer in batch mode, in a file.

It accepts buffers like a pipelined subpartition. It writes each full buffer to a file that all subpartitions of the
partition share. The segment is recycled at once, so only the disk limits the task. The consumer reads when the
partition is finished. `poll` then returns buffers that refer to bytes of the file. The kernel sends these bytes to a
remote consumer, and a local consumer reads them in place. Flink's classes are BoundedBlockingSubpartition and, with one
file for all subpartitions, SortMergeResultPartition.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from headgate.errors import ExchangeError
from headgate.exchange.compression import compressed
from headgate.exchange.partition_file import PartitionFile
from headgate.exchange.subpartition import EventConsumer, PipelinedSubpartition
from headgate.memory.buffer import Buffer
from headgate.memory.buffer_builder import BufferConsumer
from headgate.memory.lock import LockFactory
from headgate.protocol.sender import Credit, PolledBuffer
from headgate.records.events import CheckpointBarrier, EndOfPartition, encode_event

#: The entry of an event in the list of buffer sizes.
_EVENT: Final = 0
#: The flag in the size of a compressed buffer.
_COMPRESSED: Final = 1 << 31


def _ignore() -> None: ...


class BlockingSubpartition:
    """A subpartition in a file. It has one writer (the task) until `finish`, and then one reader.

    The reader is the network thread, or a task of the same TaskManager. The lock protects the reader's position and
    the flag for the release.
    """

    def __init__(
        self,
        index: int,
        file: PartitionFile,
        lock_factory: LockFactory,
        on_settled: Callable[[], None] = _ignore,
        *,
        compress: bool = False,
    ) -> None:
        file.retain()
        self.index = index
        self._file = file
        self._lock = lock_factory()
        self._on_settled = on_settled
        self._compress = compress
        self._current: BufferConsumer | None = None
        # One entry per item, in order: a buffer's offset and size, or an event's index in `_events` and `_EVENT`.
        self._places = array("Q")
        self._sizes = array("I")
        self._events: list[bytes] = []
        self._next = 0
        self._backlog = 0
        self._has_reader = False
        self._released = False
        self.finished = False
        self.queued_bytes = 0
        self.credit: Credit | None = None
        self.buffers_sent = 0
        self.bytes_sent = 0
        self.buffer_size: int | None = None  # has no effect here: data on disk do not delay barriers
        self.writer_rests = False
        self.on_starved: Callable[[], None] = _ignore

    # --- the writer's side

    def add(self, consumer: BufferConsumer | EventConsumer) -> None:
        """Append an event, or a buffer that the writer will fill. The previous buffer is finished and goes to disk.

        Raises SpillError when the disk has no room for the previous buffer.
        """
        self.announce()
        if self._released or self.finished:
            consumer.close()
        elif isinstance(consumer, EventConsumer):
            self._add_event(encode_event(consumer.event))
        else:
            self._current = consumer

    def add_filled(self, buffer: Buffer) -> None:
        """Append a filled buffer: each of its segments becomes a buffer in the file. Raises SpillError."""
        self.announce()
        try:
            if not self._released and not self.finished:
                self._write(buffer.views)
        finally:
            buffer.recycle()

    def announce(self) -> None:
        """Write the current buffer to disk if the writer has finished it."""
        consumer = self._current
        if consumer is None or not consumer.is_finished:
            return
        self._current = None
        buffer = consumer.build()
        try:
            if buffer.size:
                self._write([buffer.view])
        finally:
            buffer.recycle()
            consumer.close()

    def _write(self, views: Sequence[memoryview]) -> None:
        pieces: list[memoryview | bytes] = []
        for view in views:
            smaller = compressed(view) if self._compress else None
            piece = view if smaller is None else smaller
            pieces.append(piece)
            self._sizes.append(len(piece) | (0 if smaller is None else _COMPRESSED))
        at = self._file.append(pieces)
        for piece in pieces:
            self._places.append(at)
            at += len(piece)
            self.queued_bytes += len(piece)
        self._backlog += len(pieces)

    def _add_event(self, body: bytes) -> None:
        self._places.append(len(self._events))
        self._sizes.append(_EVENT)
        self._events.append(body)

    def finish(self) -> None:
        """Write the last buffer, and append EndOfPartition. The reader may attach from now on.

        Raises SpillError when the disk has no room for the buffer.
        """
        self.announce()
        if not self._released and not self.finished:
            self._add_event(encode_event(EndOfPartition()))
            self.finished = True

    def flush(self) -> None:
        """Do nothing: a reader sees the data only after `finish`."""

    def watch_for_starvation(self, *, notify: bool) -> bool:
        """Return False: no reader waits for data, because the reader attaches after `finish`."""
        return False

    def overtake(self, barrier: CheckpointBarrier) -> list[Buffer]:
        """Raise ExchangeError: batch mode has no barriers."""
        raise ExchangeError(
            f"subpartition {self.index} got the barrier of checkpoint {barrier.id}, but batch mode has no barriers"
        )

    def prioritise(self, checkpoint: int) -> list[Buffer] | None:
        """Return None: batch mode has no barriers."""
        return None

    def holds_barrier(self, checkpoint: int) -> bool:
        """Return False: batch mode has no barriers."""
        return False

    @property
    def is_settled(self) -> bool:
        """True: the task does not wait for the reader. The reader attaches after the task has ended."""
        return True

    # --- the reader's side

    def attach(
        self, listener: Callable[[], None], on_priority: Callable[[], None] | None = None, *, sends_empty: bool = False
    ) -> None:
        """Attach the only reader. `listener` is called at once, because all data are in the file.

        `on_priority` and `sends_empty` have no effect: batch mode has no barriers, and the file has no empty buffers.
        Raises ExchangeError before the partition is finished, for a second reader, or after the release.
        """
        with self._lock:
            if self._has_reader or self._released or not self.finished:
                why = "is being read already" if self._has_reader else "was released"
                raise ExchangeError(f"subpartition {self.index} {why if self.finished else 'is still being written'}")
            self._has_reader = True
        listener()

    def is_available(self, has_credit: bool) -> bool:
        """Return whether `poll` has an item that may be sent. Without credit, only an event may be sent."""
        with self._lock:
            return self._next < len(self._sizes) and (has_credit or self._sizes[self._next] == _EVENT)

    def poll(self, limit: int = 1) -> list[PolledBuffer]:
        """Return at most `limit` of the next data buffers, or a single event."""
        polled: list[PolledBuffer] = []
        with self._lock:
            while len(polled) < limit and self._next < len(self._sizes):
                place, size, sequence = self._places[self._next], self._sizes[self._next], self._next
                is_event = size == _EVENT
                buffer = Buffer.of_bytes(self._events[place]) if is_event else self._buffer(place, size)
                self._next += 1
                next_is_event = self._sizes[self._next] == _EVENT if self._next < len(self._sizes) else None
                polled.append(PolledBuffer(buffer, is_event, self._backlog, sequence & 0xFFFFFFFF, next_is_event))
                if is_event or next_is_event is not False:
                    break
        return polled

    def _buffer(self, place: int, size: int) -> Buffer:
        is_compressed = bool(size & _COMPRESSED)
        size &= ~_COMPRESSED
        self._backlog -= 1
        self.queued_bytes -= size
        self.buffers_sent += 1
        self.bytes_sent += size
        return self._file.buffer(place, size, is_compressed)

    def poll_priority(self) -> CheckpointBarrier | None:
        """Return None: batch mode has no barriers."""
        return None

    def resume(self) -> None:
        """Raise ExchangeError: no barrier can block this subpartition."""
        raise ExchangeError(f"subpartition {self.index} was asked to resume, but no barrier blocks it")

    def acknowledge(self) -> None:
        """Do nothing: the task does not wait for the reader."""

    def credit_changed(self, is_whole: bool) -> None:
        """Do nothing: the task does not wait for the reader."""

    def release(self) -> None:
        """Drop all data, because the reader has left or nobody needs the task's output any more."""
        with self._lock:
            if self._released:
                return
            self._released = True
            current, self._current = self._current, None
            self._next = len(self._sizes)
            self._backlog = self.queued_bytes = 0
        if current is not None:
            current.close()
        self._file.release()
        self._on_settled()

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def queue_length(self) -> int:
        return len(self._sizes) - self._next

    @property
    def backlog(self) -> int:
        """The number of data buffers that the reader has not polled yet."""
        return self._backlog

    @property
    def reported_backlog(self) -> int:
        return self._backlog

    def validate(self) -> None:
        """Raise AssertionError when the backlog does not match the remaining buffers."""
        data = [size for size in self._sizes[self._next :] if size != _EVENT]
        assert len(data) == self._backlog, f"backlog {self._backlog}, but {len(data)} data buffers remain"
        assert sum(size & ~_COMPRESSED for size in data) == self.queued_bytes


Subpartition: TypeAlias = PipelinedSubpartition | BlockingSubpartition
