"""PipelinedSubpartition: the queue of buffers from one subtask to one consumer.

The task adds buffers while they are still empty and fills them in place; the reader takes slices of what has been
written so far, once a buffer is finished or a flush was asked for. Rules and names: `research/flink.md` 3.4. The reader
is told only when it would otherwise not look: when it has seen the end of what there was, and there is more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer
from headgate.memory.buffer_builder import BufferConsumer
from headgate.memory.lock import LockFactory
from headgate.protocol.sender import Polled
from headgate.records.elements import Event, encode_event


class EventConsumer:
    """An event in the queue: one finished buffer that holds no segment."""

    __slots__ = ("_body",)
    is_finished: Final = True
    has_unread: Final = True

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
        self._queue: deque[BufferConsumer | EventConsumer] = deque()
        self._backlog = 0
        self._flush_requested = False
        self._sequence = 0
        self._listener: Callable[[], None] | None = None
        self._reader_waits = True  # it found nothing more at its last look, and was told nothing since
        self._released = False
        self.finished = False

    # --- the writer's side

    def add(self, consumer: BufferConsumer | EventConsumer, *, announce: bool = True) -> None:
        """Queue a buffer; all before it must be finished. A released or finished subpartition takes no more and closes
        it. Who adds several can `announce` them together."""
        with self._lock:
            refused = self._released or self.finished
            if not refused:
                self._queue.append(consumer)
                if not isinstance(consumer, EventConsumer):
                    self._backlog += 1
            notify = self._news() if announce else None
        if refused:
            consumer.close()
        if notify is not None:
            notify()

    def finish(self) -> None:
        """Queue END_OF_PARTITION, the last there is."""
        with self._lock:
            if self._released or self.finished:
                return
            self._queue.append(EventConsumer(Event.END_OF_PARTITION))
            self.finished = True
            notify = self._news()
        if notify is not None:
            notify()

    def flush(self) -> None:
        """Let the reader see what the last, unfinished buffer holds."""
        with self._lock:
            if not self._queue or self._flush_requested:
                return
            self._flush_requested = len(self._queue) > 1 or self._queue[0].has_unread
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
        return len(queue) if queue[-1].is_finished else len(queue) - 1

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

    def poll(self) -> Polled | None:
        """The next buffer, or None when there is nothing to see yet."""
        with self._lock:
            queue = self._queue
            buffer: Buffer | None = None
            is_event = False
            while queue:
                head = queue[0]
                # Finished is read first: what is built after that is then all there will ever be.
                head_finished = head.is_finished
                buffer = head.build()
                is_event = isinstance(head, EventConsumer)
                if len(queue) == 1:
                    self._flush_requested = False
                if head_finished:
                    queue.popleft().close()
                    if not is_event:
                        self._backlog -= 1
                if buffer.size:
                    break
                buffer.recycle()
                buffer = None
                if not head_finished:
                    break
            if buffer is None:
                self._reader_waits = True
                return None
            next_is_event = self._next_is_event()
            self._reader_waits = next_is_event is None
            polled = Polled(buffer, is_event, self._reported_backlog(), self._sequence, next_is_event)
            self._sequence = (self._sequence + 1) & 0xFFFFFFFF
            return polled

    def _reported_backlog(self) -> int:
        if not self._queue:
            return 0
        if self._flush_requested or self.finished or self._queue[-1].is_finished:
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
        for consumer in queue:
            consumer.close()

    @property
    def is_released(self) -> bool:
        return self._released

    @property
    def queue_length(self) -> int:
        return len(self._queue)

    @property
    def backlog(self) -> int:
        return self._backlog

    def validate(self) -> None:
        """Raises AssertionError when the queue broke its own rules."""
        with self._lock:
            data = [consumer for consumer in self._queue if not isinstance(consumer, EventConsumer)]
            assert len(data) == self._backlog, f"backlog {self._backlog}, but {len(data)} data buffers are queued"
            assert all(consumer.is_finished for consumer in list(self._queue)[:-1]), "only the last may be unfinished"
