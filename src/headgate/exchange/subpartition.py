"""PipelinedSubpartition: the queue of buffers from one subtask to one consumer.

The task adds buffers while they are still empty and fills them in place; the reader takes slices of what has been
written so far, once a buffer is finished or a flush was asked for. Rules and names are Flink's. The reader
is notified only when it would otherwise not look: when it has seen the end of what there was, and there is more.

Barriers: behind an aligned one nothing can be polled until the reader asks for it; a priority one goes
before all that is queued, and what it overtakes is handed to the task, which keeps it.
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
from headgate.protocol.sender import PolledBuffer
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
    """One writer (the task), one reader (the network thread, or a task of the same TaskManager).

    `on_settled` is called, from any thread, when the reader has acknowledged the end of data or has left. `buffer_size`
    is how much the reader wants in one buffer, None for as much as fits.
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
        "finished",
        "index",
        "on_barrier_left",
        "on_starved",
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
        self._queue: deque[BufferConsumer | EventConsumer | Buffer] = deque()
        self._backlog = 0
        self._flush_requested = False
        self._sequence = 0
        self._listener: Callable[[], None] | None = None
        self._reader_waits = True  # it found nothing more at its last look, and was not notified since
        self._released = False
        self._is_whole = True
        self._writer_waits = False  # for the reader to be starved
        #: Told, from any thread, that the reader is starved, once after it was asked and was not.
        self.on_starved: Callable[[], None] = _ignore
        #: Told, from any thread, that the reader has a barrier that went in order.
        self.on_barrier_left: Callable[[], None] = _ignore
        self.finished = False

    # --- the writer's side

    def add(self, consumer: BufferConsumer | EventConsumer) -> None:
        """Queue a buffer; all before it must be finished. A released or finished subpartition takes no more and closes
        it. `announce` tells the reader."""
        with self._lock:
            if not self._released and not self.finished:
                self._queue.append(consumer)
                if not isinstance(consumer, EventConsumer):
                    self._backlog += 1
                return
        consumer.close()

    def add_filled(self, buffer: Buffer) -> None:
        """Queue a buffer that was filled before anyone could look; otherwise as `add`."""
        with self._lock:
            if not self._released and not self.finished:
                self._queue.append(buffer)
                self._backlog += len(buffer.segments)
                return
        buffer.recycle()

    def finish(self) -> None:
        """Queue END_OF_PARTITION, the last there is."""
        with self._lock:
            if self._released or self.finished:
                return
            self._queue.append(EventConsumer(EndOfPartition()))
            self.finished = True
            notify = self._take_listener()
        if notify is not None:
            notify()

    def overtake(self, barrier: CheckpointBarrier) -> list[Buffer]:
        """Queue a priority barrier before all but earlier ones of its kind. Returns the data that it overtakes, in
        order, with a reference each for the caller."""
        with self._lock:
            if self._released or self.finished:
                return []
            overtaken = self._data_before(len(self._queue))
            notify = self._insert_priority(barrier)
        notify()
        return overtaken

    def prioritise(self, checkpoint: int) -> list[Buffer] | None:
        """Have the barrier of a checkpoint, which waits in order, overtake what is before it. Returns that as
        `overtake` does; None when no such barrier is queued (any more)."""
        with self._lock:
            barriers = ((at, _timed_barrier(queued, checkpoint)) for at, queued in enumerate(self._queue))
            position, barrier = next(((at, found) for at, found in barriers if found is not None), (0, None))
            if barrier is None:
                return None
            overtaken = self._data_before(position)
            del self._queue[position]
            notify = self._insert_priority(barrier.as_priority())
        notify()
        return overtaken

    def holds_barrier(self, checkpoint: int) -> bool:
        """The barrier of a checkpoint waits in order, and may be asked to overtake."""
        with self._lock:
            return any(_timed_barrier(queued, checkpoint) is not None for queued in self._queue)

    def _data_before(self, position: int) -> list[Buffer]:
        data = [queued for queued in islice(self._queue, position) if not isinstance(queued, EventConsumer)]
        buffers = [queued.retain() if isinstance(queued, Buffer) else queued.peek() for queued in data]
        for empty in (buffer for buffer in buffers if not buffer.size):
            empty.recycle()
        return [buffer for buffer in buffers if buffer.size]

    def _insert_priority(self, barrier: CheckpointBarrier) -> Callable[[], None]:
        """Under the lock; returns whom to tell outside it, also if the reader knows of other data."""
        queued = takewhile(lambda item: isinstance(item, EventConsumer) and is_priority(item.event), self._queue)
        self._queue.insert(sum(1 for _ in queued), EventConsumer(barrier))
        return self._on_priority if not self._blocked else _ignore

    @property
    def is_settled(self) -> bool:
        """The reader has processed all records, or has left."""
        return self._acknowledged or self._released

    def flush(self) -> None:
        """Let the reader see what the last, unfinished buffer holds."""
        with self._lock:
            if not self._queue or self._flush_requested:
                return
            head = self._queue[0]
            self._flush_requested = len(self._queue) > 1 or isinstance(head, Buffer) or head.has_unread
            notify = self._take_listener()
        if notify is not None:
            notify()

    def announce(self) -> None:
        """Tell the reader of what was added or has been filled up, if there is need to."""
        with self._lock:
            notify = self._take_listener()
        if notify is not None:
            notify()

    def ask_whether_starved(self, *, tell: bool) -> bool:
        """Returns whether the consumer has nothing of this channel left: there are no data for the reader to look at,
        and what it has sent was consumed. With `tell`, `on_starved` is called once when it comes to that; without, the
        writer waits for it no more."""
        with self._lock:
            starved = self._is_starved()
            self._writer_waits = tell and not starved
            return starved

    def _is_starved(self) -> bool:
        reads = self._listener is not None and self._is_whole and not self._blocked and not self._released
        return reads and not self._is_available()

    def _end_wait(self) -> bool:
        """End the writer's wait if the reader is starved. Returns whether it did: `on_starved` must then be called
        outside the lock."""
        if not self._writer_waits or not self._is_starved():
            return False
        self._writer_waits = False
        return True

    def _take_listener(self) -> Callable[[], None] | None:
        """Whom to tell, outside the lock, that something can be polled, and who then counts as notified; none while the
        reader is still looking."""
        if self._listener is None or not self._reader_waits or not self._is_available():
            return None
        self._reader_waits = False
        return self._listener

    def _finished_buffers(self) -> int:
        """Only the last may be unfinished."""
        queue = self._queue
        if not queue:
            return 0
        return len(queue) if _is_finished(queue[-1]) else len(queue) - 1

    # --- the reader's side

    def attach(
        self,
        listener: Callable[[], None],
        on_priority: Callable[[], None] | None = None,
        *,
        sends_empty: bool = False,
    ) -> None:
        """Take the reading end; there is one. `listener` is called outside the lock when data become available,
        `on_priority` (if it is another one) for a barrier that overtakes. With `sends_empty` a buffer that is
        finished with nothing in it is sent too: it takes back the credit that its place in the backlog has raised."""
        with self._lock:
            if self._listener is not None:
                raise ExchangeError("this subpartition is being read already")
            if self._released:
                raise ExchangeError("this subpartition was released")
            self._listener = listener
            self._on_priority = on_priority or listener
            self._sends_empty = sends_empty
            notify, starved = self._take_listener(), self._end_wait()
        if notify is not None:
            notify()
        if starved:
            self.on_starved()

    def credit_changed(self, is_whole: bool) -> None:
        """The consumer has consumed all that it was sent, or has not; a reader without credit never says so."""
        with self._lock:
            self._is_whole = is_whole
            starved = self._end_wait()
        if starved:
            self.on_starved()

    def is_available(self, has_credit: bool) -> bool:
        """Whether `poll` would return something that may be sent now; without credit only an event may."""
        with self._lock:
            if has_credit:
                return self._is_available()
            return not self._blocked and bool(self._queue) and isinstance(self._queue[0], EventConsumer)

    def _is_available(self) -> bool:
        return not self._blocked and (self._flush_requested or self._finished_buffers() > 0)

    def resume(self) -> None:
        """Go on behind the barrier that was polled last. Raises ExchangeError if none blocks."""
        with self._lock:
            if not self._blocked and not self._released:
                raise ExchangeError("a channel was asked to go on that no barrier blocks")
            self._blocked = False
            notify, starved = self._take_listener(), self._end_wait()
        if notify is not None:
            notify()
        if starved:
            self.on_starved()

    def acknowledge(self) -> None:
        """The reader has processed all records up to the end of data."""
        self._acknowledged = True
        self._on_settled()

    def poll_priority(self) -> CheckpointBarrier | None:
        """A barrier that overtakes, if that is what comes next."""
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
        """The next buffers, of `limit` segments at most: data, or a single event; empty when there is nothing to see
        yet."""
        polled: list[PolledBuffer] = []
        with self._lock:
            while limit > 0 and not self._blocked and not (polled and self._would_split(limit)):
                taken = self._take(limit)
                if taken is None:
                    break
                buffer, is_event = taken
                count = len(buffer.segments)
                limit -= count
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
        """The first buffer would have to be split: not worth it unless nothing else can be taken."""
        head = self._queue[0]
        return isinstance(head, Buffer) and len(head.segments) > limit

    def _take(self, limit: int) -> tuple[Buffer, bool] | None:
        """The first buffer with anything in it, or its first `limit` segments, and whether it is an event."""
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
            # Finished is read first: what is built after that is then all there will ever be.
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
        """Data buffers that the reader could poll now, had it room for them."""
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
        """The reader will not come back, or the task is gone: close what is queued."""
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
        with self._lock:
            return self._backlog + sum(isinstance(queued, EventConsumer) for queued in self._queue)

    @property
    def queued_bytes(self) -> int:
        """Bytes that the reader has not taken yet."""
        with self._lock:
            return sum(queued.size if isinstance(queued, Buffer) else queued.unread for queued in self._queue)

    @property
    def backlog(self) -> int:
        return self._backlog

    def validate(self) -> None:
        """Raises AssertionError when the queue broke its own rules."""
        with self._lock:
            data = [consumer for consumer in self._queue if not isinstance(consumer, EventConsumer)]
            queued = sum(len(each.segments) if isinstance(each, Buffer) else 1 for each in data)
            assert queued == self._backlog, f"backlog {self._backlog}, but {queued} data buffers are queued"
            assert all(map(_is_finished, list(self._queue)[:-1])), "only the last may be unfinished"


def _timed_barrier(queued: BufferConsumer | EventConsumer | Buffer, checkpoint: int) -> CheckpointBarrier | None:
    """The barrier of a checkpoint, if this is it and it may be asked to overtake."""
    event = queued.event if isinstance(queued, EventConsumer) else None
    if isinstance(event, CheckpointBarrier) and event.id == checkpoint and event.is_announced:
        return event
    return None


def _is_finished(queued: BufferConsumer | EventConsumer | Buffer) -> bool:
    return isinstance(queued, Buffer) or queued.is_finished
