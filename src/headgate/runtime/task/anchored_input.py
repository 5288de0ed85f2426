"""The input of a task whose messages have ids, for the throttle `MaxPending`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headgate.exchange.gate import InputGate
from headgate.records.arrow import BatchCodec
from headgate.records.elements import Anchor
from headgate.records.spanning import Element, MessageMemory
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.task.input import TaskInput


class AnchoredInput(TaskInput):
    """A `TaskInput` that calls `begin` with the id of each batch before it returns the batch.

    `next` calls `begin` with None if it returns a batch without an id, another element, or nothing. Each message is a
    batch of its own, whatever `joins` is.
    """

    def __init__(
        self,
        gates: Sequence[InputGate],
        codecs: Sequence[BatchCodec],
        message_size: int,
        barriers: TaskBarriers,
        memory: MessageMemory | None = None,
        *,
        begin: Callable[[Anchor | None], None],
        joins: bool = True,
        ports: Sequence[int] | None = None,
    ) -> None:
        super().__init__(gates, codecs, message_size, barriers, memory, joins=False, ports=ports)
        self._begin = begin
        #: The id of the next message, by channel.
        self._next_ids: dict[int, Anchor] = {}
        self._id: Anchor | None = None

    def _take(self, channel: int, element: Element) -> None:
        if isinstance(element, Anchor):
            self._next_ids[channel] = element
            return
        if isinstance(element, pa.RecordBatch):
            self._id = self._next_ids.pop(channel, None)
        super()._take(channel, element)

    def next(self) -> Element | None:
        element = super().next()
        if isinstance(element, pa.RecordBatch):
            self._begin(self._id)
        else:
            self._begin(None)
        return element
