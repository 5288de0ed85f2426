"""PipelinedSubpartition: the queue of buffers from one subtask to one consumer.

The task adds buffers while they are still empty and fills them in place; the reader takes slices of what has been
written so far, once a buffer is finished or a flush was asked for. Rules and names: `research/flink.md` 3.4. The reader
is told only when it would otherwise not look: when it has seen the end of what there was, and there is more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer
from headgate.memory.buffer_builder import BufferConsumer
from headgate.memory.lock import LockFactory
from headgate.protocol.sender import Polled
from headgate.records.events import EndOfPartition, Event, encode_event


class EventConsumer:
    """An event in the queue: one finished buffer that holds no segment."""

    __slots__ = ("_body",)
    is_finished: Final = True
    has_unread: Final = True
    unread: Final = 0  # takes no segment

    def __init__(self, event: Event) -> None:
        self._body = encode_event(event)

    def build(self) -> Buffer:
        return Buffer.of_bytes(self._body)

    def close(self) -> None: ...


class PipelinedSubpartition:
    """One writer (the task), one reader (the network thread, or a task of the same TaskManager)."""

    __slots__ = (
        "_backlog",
        "_flush_requested",
        "_listener",
        "_lock",
        "_queue",
        "_reader_waits",
        "_released",
        "_sequence",
        "finished",
        "index",
    )

    def __init__(self, index: int, lock_factory: LockFactory) -> None:
        self.index = index
        self._lock = lock_factory()
        self._queue: deque[BufferConsumer | EventConsumer | Buffer] = deque()
        self._backlog = 0
        self._flush_requested = False
        self._sequence = 0
        self._listener: Callable[[], None] | None = None
        self._reader_waits = True  # it found nothing more at its last look, and was told nothing since
        self._released = False
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

    def add_filled(self, buffers: Sequence[Buffer]) -> None:
        """Queue buffers that were filled before anyone could look; otherwise as `add`."""
        with self._lock:
            if not self._released and not self.finished:
                self._queue.extend(buffers)
                self._backlog += len(buffers)
                return
        for buffer in buffers:
            buffer.recycle()

    def finish(self) -> None:
        """Queue END_OF_PARTITION, the last there is."""
        with self._lock:
            if self._released or self.finished:
                return
            self._queue.append(EventConsumer(EndOfPartition()))
            self.finished = True
            notify = self._news()
        if notify is not None:
            notify()

    def flush(self) -> None:
        """Let the reader see what the last, unfinished buffer holds."""
        with self._lock:
            if not self._queue or self._flush_requested:
                return
            head = self._queue[0]
            self._flush_requested = len(self._queue) > 1 or isinstance(head, Buffer) or head.has_unread
            notify = self._news()
        if notify is not None:
            notify()

    def announce(self) -> None:
        """Tell the reader of what was added or has been filled up, if there is need to."""
        with self._lock:
            notify = self._news()
        if notify is not None:
            notify()

    def _news(self) -> Callable[[], None] | None:
        """Whom to tell, outside the lock, that something can be polled; nobody while the reader is still looking."""
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

    def attach(self, listener: Callable[[], None]) -> None:
        """Take the reading end; there is one. `listener` is called outside the lock when data become available."""
        with self._lock:
            if self._listener is not None:
                raise ExchangeError("this subpartition is being read already")
            if self._released:
                raise ExchangeError("this subpartition was released")
            self._listener = listener
            notify = self._news()
        if notify is not None:
            notify()

    def is_available(self, has_credit: bool) -> bool:
        """Whether `poll` would return something that may be sent now; without credit only an event may."""
        with self._lock:
            if has_credit:
                return self._is_available()
            return bool(self._queue) and isinstance(self._queue[0], EventConsumer)

    def _is_available(self) -> bool:
        return self._flush_requested or self._finished_buffers() > 0

    def poll(self, limit: int = 1) -> list[Polled]:
        """The next buffers, `limit` at most: data, or a single event; empty when there is nothing to see yet."""
        polled: list[Polled] = []
        with self._lock:
            while len(polled) < limit:
                taken = self._take()
                if taken is None:
                    break
                buffer, is_event = taken
                next_is_event = self._next_is_event()
                polled.append(Polled(buffer, is_event, self._reported_backlog(), self._sequence, next_is_event))
                self._sequence = (self._sequence + 1) & 0xFFFFFFFF
                if next_is_event is not False:
                    break
            self._reader_waits = not polled or polled[-1].next_is_event is None
        return polled

    def _take(self) -> tuple[Buffer, bool] | None:
        """The first buffer with anything in it, and whether it is an event."""
        queue = self._queue
        while queue:
            head = queue[0]
            if len(queue) == 1:
                self._flush_requested = False
            if isinstance(head, Buffer):
                queue.popleft()
                self._backlog -= 1
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
            if buffer.size:
                return buffer, is_event
            buffer.recycle()
            if not head_finished:
                return None
        return None

    def _reported_backlog(self) -> int:
        if not self._queue:
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

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def queue_length(self) -> int:
        return len(self._queue)

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
            assert len(data) == self._backlog, f"backlog {self._backlog}, but {len(data)} data buffers are queued"
            assert all(map(_is_finished, list(self._queue)[:-1])), "only the last may be unfinished"


def _is_finished(queued: BufferConsumer | EventConsumer | Buffer) -> bool:
    return isinstance(queued, Buffer) or queued.is_finished
