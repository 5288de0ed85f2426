"""An input queue that reports each message to a throttle. The throttle may bound the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import pyarrow as pa

from headgate.exchange.gate import InputGate
from headgate.memory.memory_guard import MemoryGuard
from headgate.records.arrow import BatchCodec
from headgate.records.events import Event
from headgate.records.spanning import Element, MessageMemory
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.queued_input import QueuedInput
from headgate.throttle.mechanism import Overflow, QueuePolicy

_NO_LIMIT: Final = QueuePolicy((1 << 62) - 1, Overflow.DROP_NEWEST)


class QueueWatch(Protocol):
    """The interface by which an input queue reports its messages with rows. The calling thread holds the queue's
    lock."""

    def added(self, channel: int, messages: int, size: int) -> None:
        """Note that a message of `size` bytes has arrived on a channel. The queue now has `messages` messages."""

    def left(self, messages: int, size: int) -> None:
        """Note that a message of `size` bytes has left the queue, which now has `messages` messages. The task takes the
        message, or sets it aside."""

    def taken(self) -> None:
        """Note that the task now takes a message to process it. The message may have been set aside before."""


class WatchedInput(QueuedInput):
    """A `QueuedInput` that drops no message, and reports each message to a `QueueWatch`.

    Each message is a batch of its own, whatever `joins` is. Messages wait in heap memory, not in network memory. If
    more bytes wait than `guard` allows, also in messages that are set aside, the input raises NetworkMemoryFull. While
    `has_room` returns False, further messages wait in their channels; None: the queue always has room. The thread that
    calls `has_room` holds the queue's lock.

    When the task comes to a barrier and waits for those of other channels, it sets aside only what is in the queue.
    What arrives from then on stays in its channel, on disk or without credit: no throttle counts what is set aside, so
    this must have a limit. After the alignment the input catches up: until the channels are empty, it reads them only
    while less than half of what `guard` allows waits.
    """

    def __init__(
        self,
        gates: Sequence[InputGate],
        codecs: Sequence[BatchCodec],
        message_size: int,
        barriers: TaskBarriers,
        memory: MessageMemory | None = None,
        *,
        watch: QueueWatch,
        guard: MemoryGuard,
        has_room: Callable[[], bool] | None = None,
        wake: Callable[[], None],
        joins: bool = True,
        ports: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            gates, codecs, message_size, barriers, memory, policy=_NO_LIMIT, wake=wake, joins=False, ports=ports
        )
        self._watch = watch
        self._guard = guard
        self._queue_has_room = has_room
        #: Also those that are set aside.
        self._waiting_messages = self._waiting_bytes = 0
        self._aside_bytes = 0
        self._catches_up = False

    def _may_queue(self) -> bool:
        # If all that waits is set aside, the queue takes the next message: the barrier for which it waits comes behind.
        if (
            self._catches_up
            and self._waiting_bytes >= self._guard.size // 2
            and self._waiting_bytes > self._aside_bytes
        ):
            return False
        return self._queue_has_room is None or self._queue_has_room()

    def _poll(self) -> bool:
        has_polled = super()._poll()
        if not has_polled:
            self._catches_up = False
        return has_polled

    def _put(self, channel: int, element: Element) -> None:
        super()._put(channel, element)
        if isinstance(element, pa.RecordBatch):
            size = self._codecs[channel].batch_bytes(element)
            self._waiting_messages += 1
            self._waiting_bytes += size
            if self._waiting_bytes > self._guard.size:
                raise self._guard.full(
                    f"{self._waiting_messages} messages of {self._waiting_bytes} bytes wait in an input queue, and "
                    f"network_memory has {self._guard.size} bytes. The throttle has not stopped their senders in time"
                )
            self._watch.added(channel, self._messages, size)

    def _left_queue(self, channel: int, batch: pa.RecordBatch) -> None:
        super()._left_queue(channel, batch)
        self._watch.left(self._messages, self._codecs[channel].batch_bytes(batch))

    def _block(self, channel: int) -> None:
        super()._block(channel)
        self._channels[channel].block()

    def _set_aside(self, channel: int, element: Element | Event) -> None:
        super()._set_aside(channel, element)
        if isinstance(element, pa.RecordBatch):
            self._aside_bytes += self._codecs[channel].batch_bytes(element)

    def _unblock(self, channels: Sequence[int]) -> None:
        with self._lock:
            blocked = [channel for channel in channels if channel in self._blocked]
            self._aside_bytes = 0
            super()._unblock(channels)
            self._catches_up = self._catches_up or bool(blocked)
            for channel in blocked:
                self._channels[channel].unblock()
        self._take_in()

    def _take(self, channel: int, element: Element) -> None:
        super()._take(channel, element)
        if isinstance(element, pa.RecordBatch):
            self._waiting_messages -= 1
            self._waiting_bytes -= self._codecs[channel].batch_bytes(element)
            self._watch.taken()
