"""An input with a bounded queue. It takes messages as they arrive, and drops messages when the queue is full."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.exchange.gate import InputGate
from headgate.records.arrow import BatchCodec
from headgate.records.elements import WatermarkElement
from headgate.records.events import CheckpointBarrier, Event
from headgate.records.spanning import Element, MessageMemory
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.input import TaskInput
from headgate.throttle.mechanism import Overflow, QueuePolicy

_Queued = tuple[int, Element | Event]


class QueuedInput(TaskInput):
    """A `TaskInput` with a bounded queue of messages between the gates and the task.

    The gates call `arrived` when they have data. The calling thread queues the data at once, also while the task
    processes a batch. A full queue drops the newest or the oldest message, so senders never wait for the task. Only
    messages with rows count and may be dropped. Events, watermarks and markers always reach the task.

    The lock protects the queue and all reads of the gates. The task's thread and the threads that call `arrived` take
    it.
    """

    def __init__(
        self,
        gates: Sequence[InputGate],
        codecs: Sequence[BatchCodec],
        message_size: int,
        barriers: TaskBarriers,
        memory: MessageMemory | None = None,
        *,
        policy: QueuePolicy,
        wake: Callable[[], None],
        joins: bool = True,
        ports: Sequence[int] | None = None,
    ) -> None:
        """Create the input. `TaskInput` explains the other arguments.

        `arrived` calls `wake`, which wakes the task.
        """
        super().__init__(gates, codecs, message_size, barriers, memory, joins=joins, ports=ports)
        self._policy = policy
        self._wake = wake
        self._lock = threading.Lock()
        self._has_arrived = False
        self._queue: deque[_Queued] = deque()
        self._messages = 0
        #: How many barriers are in the queue. While there is one, nothing reads the gates: the task may have to block a
        #: channel.
        self._barriers_in_queue = 0
        self._error: Exception | None = None
        self._closed = False

    def arrived(self) -> None:
        """Queue the data that has arrived, and wake the task. Any thread may call this; the call does not wait for the
        task."""
        self._has_arrived = True
        self._take_in()
        self._wake()

    def _take_in(self) -> None:
        """Queue the data that has arrived. If another thread holds the lock, that thread queues the data before it
        continues."""
        while self._has_arrived and self._lock.acquire(blocking=False):
            try:
                self._has_arrived = False
                if not self._barriers.is_behind:
                    self._fill()
            finally:
                self._lock.release()

    def _fill(self) -> None:
        """Read the gates until they are empty, a barrier comes, or the queue blocks. The caller holds the lock."""
        try:
            while not (self._closed or self._barriers_in_queue or self._error) and self._may_read():
                while self._elements and self._may_queue():
                    self._put(*self._elements.popleft())
        except HeadgateError as error:
            self._error = error.with_traceback(None)  # frames of callers, too, may hold views into segments
        except Exception as error:  # a bug
            self._error = error

    def _may_read(self) -> bool:
        return self._may_queue() and (bool(self._elements) or self._poll())

    def _may_queue(self) -> bool:
        """Return whether the queue takes another element. If not, the element waits in its channel."""
        return True

    def _on_event(self, channel: int, event: Event) -> None:
        """Queue an event of the gates. `_gather` handles the event when the task has taken all rows before it."""
        self._barriers_in_queue += isinstance(event, CheckpointBarrier)
        self._queue.append((channel, event))

    def _put(self, channel: int, element: Element) -> None:
        if isinstance(element, WatermarkElement):
            self._put_watermark(channel, element)
        elif not isinstance(element, pa.RecordBatch):
            self._queue.append((channel, element))
        elif self._messages < self._policy.capacity:
            self._messages += 1
            self._queue.append((channel, element))
        elif self._policy.overflow is Overflow.DROP_NEWEST:
            self.rows_dropped += element.num_rows
        else:
            self._drop_oldest()
            self._queue.append((channel, element))

    def _put_watermark(self, channel: int, watermark: WatermarkElement) -> None:
        """Queue a watermark. It replaces the channel's previous watermark if no message lies between the two."""
        for back in range(1, len(self._queue) + 1):
            other, element = self._queue[-back]
            if isinstance(element, pa.RecordBatch):
                break
            if other == channel:
                if isinstance(element, WatermarkElement):
                    self._queue[-back] = channel, watermark
                    return
                break
        self._queue.append((channel, watermark))

    def _drop_oldest(self) -> None:
        """Drop the oldest message. All other elements of the queue keep their order."""
        before: list[_Queued] = []
        while True:
            channel, element = self._queue.popleft()
            if isinstance(element, pa.RecordBatch):
                break
            before.append((channel, element))
        self.rows_dropped += element.num_rows
        while self._queue and not isinstance(self._queue[0][1], pa.RecordBatch):
            before.append(self._queue.popleft())
        self._queue.extendleft(reversed(_without_old_watermarks(before)))

    # --- the task's thread

    def _gather(self) -> None:
        """Take elements from the queue, up to the message size."""
        with self._lock:
            if not self._barriers.is_behind:
                self._fill()
            if self._error is not None and not self._queue:
                raise self._error
            while self._has_room and not self._barriers.is_behind and self._queue:
                channel, element = self._queue.popleft()
                if isinstance(element, Event):
                    self._barriers_in_queue -= isinstance(element, CheckpointBarrier)
                    super()._on_event(channel, element)
                else:
                    self._messages -= isinstance(element, pa.RecordBatch)
                    self._take(channel, element)
        self._take_in()

    def catch_up(self) -> bool:
        with self._lock:
            caught_up = super().catch_up()
        self._take_in()
        return caught_up

    @property
    def is_finished(self) -> bool:
        return not self._queue and super().is_finished

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _without_old_watermarks(queued: list[_Queued]) -> list[_Queued]:
    """Return the elements without replaced watermarks. A watermark replaces the channel's previous element if that is
    a watermark, too."""
    kept: list[_Queued] = []
    last: dict[int, int] = {}
    for channel, element in queued:
        at = last.get(channel)
        if at is not None and isinstance(element, WatermarkElement) and isinstance(kept[at][1], WatermarkElement):
            kept[at] = channel, element
            continue
        last[channel] = len(kept)
        kept.append((channel, element))
    return kept
