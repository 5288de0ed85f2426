"""PipelinedSubpartition: the queue of buffers from one subtask to one consumer.

The task adds empty buffers and fills them in place. The reader takes slices of the written bytes when a buffer is
finished or a flush was requested. Rules and names are Flink's. The reader polls until no data are available. Only then
do new data notify the reader.

Barriers: the reader cannot poll beyond an aligned barrier until `resume` is called. A priority barrier goes ahead of
all queued data. The call that queues this barrier returns the overtaken data, because they belong to the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Final

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer
from headgate.memory.buffer_builder import BufferConsumer
from headgate.memory.lock import LockFactory
from headgate.protocol.sender import Credit, PolledBuffer
from headgate.records.events import CheckpointBarrier, EndOfPartition, Event, blocks, encode_event, is_priority


class EventConsumer:
    """An event in the queue: one finished buffer that holds no segment."""

    __slots__ = ("event",)
    is_finished: Final = True
    has_unread: Final = True
    unread: Final = 0  # takes no segment

    def __init__(self, event: Event) -> None:
        self.event = event

    def build(self) -> Buffer:
        return Buffer.of_bytes(encode_event(self.event))

    def close(self) -> None: ...


def _ignore() -> None: ...


class PipelinedSubpartition:
    """A queue with one writer (the task) and one reader (the network thread, or a task of the same TaskManager).

    The lock protects the queue and all flags. It is taken before the pool's lock, because `poll` recycles empty buffers
    under the lock. The callbacks of this class run without the lock.

    `on_settled` is called, on any thread, when the reader has acknowledged the end of data or has left. `buffer_size`
    is the most bytes that the reader wants in one buffer; None means a full segment. `credit` is that of a remote
    reader; None for a local reader. `writer_rests` is that of the partition when the reader was last notified.
    """

    __slots__ = (
        "_acknowledged",
        "_backlog",
        "_blocked",
        "_flush_requested",
        "_is_whole",
        "_listener",
        "_lock",
        "_on_priority",
        "_on_settled",
        "_queue",
        "_reader_waits",
        "_released",
        "_sends_empty",
        "_sequence",
        "_writer_waits",
        "buffer_size",
        "buffers_sent",
        "bytes_sent",
        "credit",
        "finished",
        "index",
        "on_barrier_left",
        "on_starved",
        "writer_rests",
    )

    def __init__(self, index: int, lock_factory: LockFactory, on_settled: Callable[[], None] = _ignore) -> None:
        self.index = index
        self._lock = lock_factory()
        self._on_settled = on_settled
        self._on_priority: Callable[[], None] = _ignore
        self._sends_empty = False
        self._blocked = False
        self._acknowledged = False
        self.buffer_size: int | None = None
        self.credit: Credit | None = None
        self.writer_rests = False
        #: The totals of data that the reader has polled. A reader with credit spends one credit for each buffer.
        self.buffers_sent = 0
        self.bytes_sent = 0
        self._queue: deque[BufferConsumer | EventConsumer | Buffer] = deque()
        self._backlog = 0
        self._flush_requested = False
        self._sequence = 0
        self._listener: Callable[[], None] | None = None
        self._reader_waits = True  # the reader has polled all available data, and was not notified since then
        self._released = False
        self._is_whole = True
        self._writer_waits = False  # the writer waits until the reader starves
        #: Called once, on any thread, when the reader starves after `watch_for_starvation(notify=True)` was False.
        self.on_starved: Callable[[], None] = _ignore
        #: Called, on any thread, when the reader has polled a barrier that blocks it.
        self.on_barrier_left: Callable[[], None] = _ignore
        self.finished = False

    # --- the writer's side

    def add(self, consumer: BufferConsumer | EventConsumer) -> None:
        """Queue a buffer or an event. All buffers before it must be finished.

        The reader is notified only by a later `announce`. A released or finished subpartition closes the item at once.
        """
        with self._lock:
            if not self._released and not self.finished:
                self._queue.append(consumer)
                if not isinstance(consumer, EventConsumer):
                    self._backlog += 1
                return
        consumer.close()

    def add_filled(self, buffer: Buffer) -> None:
        """Queue a buffer that is already filled. A released or finished subpartition recycles it at once."""
        with self._lock:
            if not self._released and not self.finished:
                self._queue.append(buffer)
                self._backlog += len(buffer.segments)
                return
        buffer.recycle()

    def finish(self) -> None:
        """Queue EndOfPartition as the last event, and notify the reader."""
        with self._lock:
            if self._released or self.finished:
                return
            self._queue.append(EventConsumer(EndOfPartition()))
            self.finished = True
            notify = self._take_listener()
        if notify is not None:
            notify()

    def overtake(self, barrier: CheckpointBarrier) -> list[Buffer]:
        """Queue a priority barrier ahead of all items except earlier priority barriers.

        Returns the data buffers that the barrier overtakes, in order, each with a reference for the caller.
        """
        with self._lock:
            if self._released or self.finished:
                return []
            overtaken = self._data_before(len(self._queue))
            notify = self._insert_priority(barrier)
        notify()
        return overtaken

    def prioritise(self, checkpoint: int) -> list[Buffer] | None:
        """Let the queued barrier of a checkpoint overtake the items before it.

        Returns the overtaken buffers like `overtake`, or None when no such barrier is queued.
        """
        with self._lock:
            barriers = ((at, _timed_barrier(queued, checkpoint)) for at, queued in enumerate(self._queue))
            position, barrier = next(((at, timed) for at, timed in barriers if timed is not None), (0, None))
            if barrier is None:
                return None
            overtaken = self._data_before(position)
            del self._queue[position]
            notify = self._insert_priority(barrier.as_priority())
        notify()
        return overtaken

    def holds_barrier(self, checkpoint: int) -> bool:
        """Return whether a checkpoint's barrier is queued in order and may still overtake the items before it."""
        with self._lock:
            return any(_timed_barrier(queued, checkpoint) is not None for queued in self._queue)

    def _data_before(self, position: int) -> list[Buffer]:
        """Return the data buffers before a position of the queue, each with a new reference."""
        data = [queued for queued in islice(self._queue, position) if not isinstance(queued, EventConsumer)]
        buffers = [queued.retain() if isinstance(queued, Buffer) else queued.peek() for queued in data]
        for empty in (buffer for buffer in buffers if not buffer.size):
            empty.recycle()
        return [buffer for buffer in buffers if buffer.size]

    def _insert_priority(self, barrier: CheckpointBarrier) -> Callable[[], None]:
        """Insert a priority barrier, and return the callback that notifies the reader. The caller holds the lock.

        The caller releases the lock and then runs the callback, even if the reader was already notified of other data.
        """
        queued = takewhile(lambda item: isinstance(item, EventConsumer) and is_priority(item.event), self._queue)
        self._queue.insert(sum(1 for _ in queued), EventConsumer(barrier))
        return self._on_priority if not self._blocked else _ignore

    @property
    def is_settled(self) -> bool:
        """Whether the reader has acknowledged that it has processed all records.

        Without this acknowledgement, a reader that leaves does not count: if its connection was lost, rows sent to it
        may be lost too. The task then waits until the attempt ends.
        """
        return self._acknowledged

    def flush(self) -> None:
        """Make the bytes of the last, unfinished buffer visible to the reader."""
        with self._lock:
            if not self._queue or self._flush_requested:
                return
            head = self._queue[0]
            self._flush_requested = len(self._queue) > 1 or isinstance(head, Buffer) or head.has_unread
            notify = self._take_listener()
        if notify is not None:
            notify()

    def announce(self) -> None:
        """Notify the reader of added or finished buffers, if the reader waits."""
        with self._lock:
            notify = self._take_listener()
        if notify is not None:
            notify()

    def watch_for_starvation(self, *, notify: bool) -> bool:
        """Return whether the consumer is starved: nothing is available to poll, and it has consumed all buffers sent.

        The result is False if no reader is attached, a barrier blocks it, or the subpartition was released. If it is
        False and `notify` is True, `on_starved` is called once, when the consumer starves. With `notify=False`, a
        pending call is cancelled.
        """
        with self._lock:
            starved = self._is_starved()
            self._writer_waits = notify and not starved
            return starved

    def _is_starved(self) -> bool:
        reads = self._listener is not None and self._is_whole and not self._blocked and not self._released
        return reads and not self._is_available()

    def _end_wait(self) -> bool:
        """End the writer's wait if the reader is starved, and return whether the wait has ended.

        If it has ended, the caller releases the lock and then calls `on_starved`.
        """
        if not self._writer_waits or not self._is_starved():
            return False
        self._writer_waits = False
        return True

    def _take_listener(self) -> Callable[[], None] | None:
        """Return the listener if the reader waits and data are available, else None. The reader counts as notified.

        The caller releases the lock and then calls the listener.
        """
        if self._listener is None or not self._reader_waits or not self._is_available():
            return None
        self._reader_waits = False
        return self._listener

    # --- the reader's side

    def attach(
        self,
        listener: Callable[[], None],
        on_priority: Callable[[], None] | None = None,
        *,
        sends_empty: bool = False,
    ) -> None:
        """Attach the only reader. Raises ExchangeError for a second reader, or after the release.

        `listener` is called, without the lock, when data become available. `on_priority`, if given, is called in its
        place for a priority barrier. With `sends_empty` the reader also polls finished buffers that are empty. They are
        part of the backlog, so the consumer has granted credit for them. Sending them uses up this credit.
        """
        with self._lock:
            if self._listener is not None:
                raise ExchangeError(f"subpartition {self.index} is being read already")
            if self._released:
                raise ExchangeError(f"subpartition {self.index} was released")
            self._listener = listener
            self._on_priority = on_priority or listener
            self._sends_empty = sends_empty
            notify, starved = self._take_listener(), self._end_wait()
        if notify is not None:
            notify()
        if starved:
            self.on_starved()

    def credit_changed(self, is_whole: bool) -> None:
        """Record whether the consumer has consumed all buffers sent to it. Only a reader with credit calls this."""
        with self._lock:
            self._is_whole = is_whole
            starved = self._end_wait()
        if starved:
            self.on_starved()

    def is_available(self, has_credit: bool) -> bool:
        """Return whether `poll` has an item that may be sent now. Without credit, only an event may be sent."""
        with self._lock:
            if has_credit:
                return self._is_available()
            return not self._blocked and bool(self._queue) and isinstance(self._queue[0], EventConsumer)

    def _is_available(self) -> bool:
        if self._blocked:
            return False
        queue = self._queue  # only its last buffer may be unfinished
        return self._flush_requested or len(queue) > 1 or (len(queue) == 1 and _is_finished(queue[0]))

    def resume(self) -> None:
        """Let the reader poll beyond the barrier that blocks it. Raises ExchangeError if no barrier blocks it."""
        with self._lock:
            if not self._blocked and not self._released:
                raise ExchangeError(f"subpartition {self.index} was asked to resume, but no barrier blocks it")
            self._blocked = False
            notify, starved = self._take_listener(), self._end_wait()
        if notify is not None:
            notify()
        if starved:
            self.on_starved()

    def acknowledge(self) -> None:
        """Record that the reader has processed all records up to the end of data."""
        self._acknowledged = True
        self._on_settled()

    def poll_priority(self) -> CheckpointBarrier | None:
        """Remove and return the first item if it is a priority barrier, else return None."""
        with self._lock:
            head = self._queue[0] if self._queue and not self._blocked else None
            if not isinstance(head, EventConsumer) or not is_priority(head.event):
                return None
            self._queue.popleft()
            if not self._queue:
                self._flush_requested = False
            self._sequence = (self._sequence + 1) & 0xFFFFFFFF
            starved = self._end_wait()
        if starved:
            self.on_starved()
        assert isinstance(head.event, CheckpointBarrier)
        return head.event

    def poll(self, limit: int = 1) -> list[PolledBuffer]:
        """Return the next data buffers, of at most `limit` segments together, or a single event, or an empty list."""
        polled: list[PolledBuffer] = []
        with self._lock:
            while limit > 0 and not self._blocked and not (polled and self._would_split(limit)):
                taken = self._take(limit)
                if taken is None:
                    break
                buffer, is_event = taken
                count = len(buffer.segments)
                limit -= count
                if not is_event:
                    self.buffers_sent += count
                    self.bytes_sent += buffer.size
                next_is_event = self._next_is_event()
                polled.append(PolledBuffer(buffer, is_event, self._reported_backlog(), self._sequence, next_is_event))
                self._sequence = (self._sequence + count) & 0xFFFFFFFF
                if is_event or next_is_event is not False:
                    break
            self._reader_waits = not polled or polled[-1].next_is_event is None
            starved = self._end_wait()
        if starved:
            self.on_starved()
        if polled and self._blocked:
            self.on_barrier_left()
        return polled

    def _would_split(self, limit: int) -> bool:
        """Return whether the first buffer has more segments than `limit`. One `poll` splits only its first buffer."""
        head = self._queue[0]
        return isinstance(head, Buffer) and len(head.segments) > limit

    def _take(self, limit: int) -> tuple[Buffer, bool] | None:
        """Take the next event, or the next bytes in at most `limit` segments.

        Returns (buffer, whether it is an event), or None when nothing is available.
        """
        queue = self._queue
        while queue:
            head = queue[0]
            if len(queue) == 1:
                self._flush_requested = False
            if isinstance(head, Buffer):
                if len(head.segments) > limit:
                    head, queue[0] = head.split(limit)
                else:
                    queue.popleft()
                self._backlog -= len(head.segments)
                return head, False
            # Read `is_finished` before `build`: if it is already True, `build` returns all remaining bytes.
            head_finished = head.is_finished
            buffer = head.build()
            is_event = isinstance(head, EventConsumer)
            if head_finished:
                queue.popleft()
                head.close()
                if not is_event:
                    self._backlog -= 1
            if isinstance(head, EventConsumer) and blocks(head.event):
                self._blocked = True
            if buffer.size or (head_finished and self._sends_empty):
                return buffer, is_event
            buffer.recycle()
            if not head_finished:
                return None
        return None

    @property
    def reported_backlog(self) -> int:
        """The number of data buffers that the reader could poll now, given enough credit."""
        with self._lock:
            return self._reported_backlog()

    def _reported_backlog(self) -> int:
        if not self._queue or self._blocked:
            return 0
        if self._flush_requested or self.finished or _is_finished(self._queue[-1]):
            return self._backlog
        return self._backlog - 1

    def _next_is_event(self) -> bool | None:
        if not self._is_available():
            return None
        return isinstance(self._queue[0], EventConsumer)

    def release(self) -> None:
        """Drop all queued items, because the reader or the task has left."""
        with self._lock:
            if self._released:
                return
            self._released = True
            queue, self._queue = self._queue, deque()
            self._backlog = 0
            self._flush_requested = False
        for queued in queue:
            queued.recycle() if isinstance(queued, Buffer) else queued.close()
        self._on_settled()

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def queue_length(self) -> int:
        if not self._queue:
            return 0
        with self._lock:
            return self._backlog + sum(isinstance(queued, EventConsumer) for queued in self._queue)

    @property
    def queued_bytes(self) -> int:
        """The bytes that the reader has not polled yet."""
        if not self._queue:
            return 0
        with self._lock:
            return sum(queued.size if isinstance(queued, Buffer) else queued.unread for queued in self._queue)

    @property
    def backlog(self) -> int:
        return self._backlog

    def validate(self) -> None:
        """Raise AssertionError when the backlog is wrong or a buffer before the last one is unfinished."""
        with self._lock:
            data = [queued for queued in self._queue if not isinstance(queued, EventConsumer)]
            count = sum(len(queued.segments) if isinstance(queued, Buffer) else 1 for queued in data)
            assert count == self._backlog, f"backlog {self._backlog}, but {count} data buffers are queued"
            assert all(map(_is_finished, list(self._queue)[:-1])), "only the last may be unfinished"


def _timed_barrier(queued: BufferConsumer | EventConsumer | Buffer, checkpoint: int) -> CheckpointBarrier | None:
    """Return the item's barrier if it belongs to the checkpoint and may still overtake, else None."""
    event = queued.event if isinstance(queued, EventConsumer) else None
    if isinstance(event, CheckpointBarrier) and event.id == checkpoint and event.is_announced:
        return event
    return None


def _is_finished(queued: BufferConsumer | EventConsumer | Buffer) -> bool:
    return isinstance(queued, Buffer) or queued.is_finished
