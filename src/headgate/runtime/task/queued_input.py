"""An input with a bounded queue. It takes messages as they arrive, and drops messages when the queue is full.

Barriers wait in the queue, too. A barrier does not stop its channel when it arrives: what follows is queued, so that a
throttle sees it. When the task comes to the barrier, and barriers of other channels are missing, it sets aside what
follows on this channel until the checkpoint is aligned. No row from behind the barrier is processed before (Flink
before 1.5: BarrierBuffer).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.exchange.gate import InputGate
from headgate.records.arrow import BatchCodec
from headgate.records.elements import WatermarkElement
from headgate.records.events import Event, blocks
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

    Messages that are set aside do not count as queued: otherwise a full queue could keep out the barrier for which they
    wait. As many messages as the queue holds may be set aside, and further ones are dropped.

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
        self._channels = [channel for gate in gates for channel in gate.channels]
        #: The channels whose barriers the task has taken from the queue, while it waits for those of other channels.
        #: What it takes of these channels goes to `_aside`, and later to `_resumed`, which comes before the queue.
        self._blocked: set[int] = set()
        self._aside: deque[_Queued] = deque()
        self._aside_messages = 0
        self._resumed: deque[_Queued] = deque()
        barriers.unblock = self._unblock
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
                self._fill()
            finally:
                self._lock.release()

    def _fill(self) -> None:
        """Read the gates until they are empty, or the queue takes no more. The caller holds the lock."""
        try:
            while not (self._closed or self._error) and self._may_read():
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
        self._queue.append((channel, event))
        if blocks(event):
            self._channels[channel].resume()

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
            self._fill()
            if self._error is not None and not self._queue and not self._resumed:
                raise self._error
            while self._has_room and not self._barriers.is_behind and (queued := self._next_queued()) is not None:
                channel, element = queued
                if isinstance(element, Event):
                    super()._on_event(channel, element)
                    if blocks(element) and self.is_blocked_by_barrier:
                        self._block(channel)
                else:
                    self._take(channel, element)
        self._take_in()

    def _next_queued(self) -> _Queued | None:
        """Remove and return the next element of a channel that is not blocked. Set aside those before it."""
        has_more = False
        while self._resumed or self._queue:
            if self._resumed:
                channel, element = self._resumed.popleft()
            else:
                channel, element = self._queue.popleft()
                if isinstance(element, pa.RecordBatch):
                    self._left_queue(channel, element)
            if channel not in self._blocked:
                return channel, element
            self._set_aside(channel, element)
            has_more = self.has_data
        if has_more:  # the queue was full, and has room now
            self._wake()
        return None

    def _left_queue(self, channel: int, batch: pa.RecordBatch) -> None:
        self._messages -= 1

    def _block(self, channel: int) -> None:
        """Set aside what follows on a channel, from the barrier that the task has just taken. The caller holds the
        lock."""
        self._blocked.add(channel)

    def _set_aside(self, channel: int, element: Element | Event) -> None:
        if isinstance(element, pa.RecordBatch):
            if self._aside_messages >= self._policy.capacity:
                self.rows_dropped += element.num_rows
                return
            self._aside_messages += 1
        self._aside.append((channel, element))

    def _unblock(self, channels: Sequence[int]) -> None:
        """Let the task go on with channels that were blocked. It first takes what was set aside, in order."""
        self._blocked.difference_update(channels)
        aside, self._aside, self._aside_messages = self._aside, deque(), 0
        resumed: list[_Queued] = []
        for channel, element in aside:
            if channel in self._blocked:
                self._set_aside(channel, element)
            else:
                resumed.append((channel, element))
        self._resumed.extendleft(reversed(resumed))

    @property
    def is_finished(self) -> bool:
        return not self._queue and not self._resumed and super().is_finished

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
