"""AnchoredOutput: the due items of a writer that sends an id before each message with rows."""

from __future__ import annotations

from collections.abc import Callable

from headgate.exchange.due import DueOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.records.elements import Anchor, Tag
from headgate.records.events import Event
from headgate.records.spanning import SpanningSerializer, serialize_small


class AnchoredOutput(DueOutput):
    """A `DueOutput` that asks `anchor` for the id of each message with rows. If the answer is None, it sends no id."""

    def __init__(self, partition: ResultPartition, count: PendingCount, anchor: Callable[[], Anchor | None]) -> None:
        super().__init__(partition, count)
        self._anchor = anchor

    def put(self, channel: int, item: SpanningSerializer | Event) -> None:
        if not isinstance(item, Event) and item.rest[0][4] == Tag.RECORDS:
            anchor = self._anchor()
            if anchor is not None:
                super().put(channel, SpanningSerializer(serialize_small(anchor)))
        super().put(channel, item)
