"""An input queue that reports each message to a throttle. The throttle may bound the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import pyarrow as pa

from headgate.errors import NetworkMemoryFull
from headgate.exchange.gate import InputGate
from headgate.records.arrow import BatchCodec
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

    def taken(self, messages: int, size: int) -> None:
        """Note that the task has taken a message of `size` bytes. The queue now has `messages` messages."""


class WatchedInput(QueuedInput):
    """A `QueuedInput` that drops no message, and reports each message to a `QueueWatch`.

    Each message is a batch of its own, whatever `joins` is. Messages wait in heap memory, not in network memory. If
    more than `guard` bytes wait, the input raises NetworkMemoryFull. While `has_room` returns False, further messages
    wait in their channels; None: the queue always has room. The thread that calls `has_room` holds the queue's lock.
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
        guard: int,
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
        self._waiting_bytes = 0

    def _may_queue(self) -> bool:
        return self._queue_has_room is None or self._queue_has_room()

    def _put(self, channel: int, element: Element) -> None:
        super()._put(channel, element)
        if isinstance(element, pa.RecordBatch):
            size = self._codecs[channel].batch_bytes(element)
            self._waiting_bytes += size
            if self._waiting_bytes > self._guard:
                raise NetworkMemoryFull(
                    f"out of memory: {self._messages} messages of {self._waiting_bytes} bytes wait in an input queue, "
                    f"and network_memory has {self._guard} bytes. The throttle has not stopped their senders in time"
                )
            self._watch.added(channel, self._messages, size)

    def _take(self, channel: int, element: Element) -> None:
        super()._take(channel, element)
        if isinstance(element, pa.RecordBatch):
            size = self._codecs[channel].batch_bytes(element)
            self._waiting_bytes -= size
            self._watch.taken(self._messages, size)
