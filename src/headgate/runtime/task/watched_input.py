"""An input queue without limit, which a throttle watches."""

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
    """Is told of each message with rows of one input queue. Any thread may call it; the queue's lock is held."""

    def added(self, channel: int, messages: int, size: int) -> None:
        """Note a message of `size` bytes of a channel. The queue now has so many messages."""

    def taken(self, messages: int, size: int) -> None:
        """Note that the task has taken a message of `size` bytes. The queue now has so many messages."""


class WatchedInput(QueuedInput):
    """A `QueuedInput` that keeps all messages, and tells a watch of each.

    Each message is a batch of its own, whatever `joins` is. Messages wait in memory of their own, outside of network
    memory. `guard` is the most bytes of them.
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
        wake: Callable[[], None],
        joins: bool = True,
        ports: Sequence[int] | None = None,
    ) -> None:
        super().__init__(
            gates, codecs, message_size, barriers, memory, policy=_NO_LIMIT, wake=wake, joins=False, ports=ports
        )
        self._watch = watch
        self._guard = guard
        self._waiting_bytes = 0

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
