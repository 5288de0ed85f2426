"""GatedOutput: the due items of a writer. The gate of a throttle may hold back the messages of each channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from headgate.exchange.due import DueOutput
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.records.elements import Tag
from headgate.records.events import Event
from headgate.records.spanning import SpanningSerializer


class SendGate(Protocol):
    """The gate of one channel. The writer's task thread calls it."""

    #: Called once, on any thread, when a message may go again after `may_send` returned False.
    opened: Callable[[], None]

    def may_send(self) -> bool:
        """Return whether the next message with rows may go now."""

    def may_hold(self, size: int) -> bool:
        """Return whether the task may go on while `size` bytes of the channel are held back."""

    def sent(self, size: int) -> None:
        """Note that a whole message of `size` bytes is in segments."""


class GatedOutput(DueOutput):
    """A `DueOutput` that asks a gate before each message with rows. What a gate holds back stays due.

    Events and watermarks keep their place: they wait only behind a message that is held back. `channels` has
    only the channels for which the task must wait. The gates of other channels may hold messages back too; these
    messages go when the gate opens. `put_mail` runs a call on the task's thread.
    """

    def __init__(
        self,
        partition: ResultPartition,
        count: PendingCount,
        gates: Sequence[SendGate],
        put_mail: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(partition, count)
        self._gates = gates
        self._closed: set[int] = set()
        for channel, gate in enumerate(gates):
            gate.opened = partial(put_mail, partial(self._open, channel))

    def _open(self, channel: int) -> None:
        self._closed.discard(channel)
        if self._items[channel]:
            self._write(channel)

    def is_gated(self) -> bool:
        return not self._closed.isdisjoint(self.channels)

    def _write(self, channel: int, overdraft: bool = False) -> None:
        due, gate = self._items[channel], self._gates[channel]
        while due:
            item = due[0]
            if _begins_message(item) and not gate.may_send():
                self._hold(channel, gate)
                return
            if not self._write_item(channel, item, overdraft):
                self.channels.add(channel)
                return
            due.popleft()
            if not isinstance(item, Event):
                gate.sent(item.size)
        self._closed.discard(channel)
        self.channels.discard(channel)
        if channel in self._flush_when_drained:
            self._flush_when_drained.discard(channel)
            self._partition.flush(channel)

    def _write_item(self, channel: int, item: SpanningSerializer | Event, overdraft: bool) -> bool:
        """Write an item, or the bytes that fit. Return whether all of it is written."""
        if isinstance(item, Event):
            self._partition.write_event(channel, item)
            return True
        before = item.remaining
        is_written = self._partition.write(channel, item, overdraft=overdraft)
        self._count.bytes -= before - item.remaining
        return is_written

    def _hold(self, channel: int, gate: SendGate) -> None:
        self._closed.add(channel)
        held = sum(item.remaining for item in self._items[channel] if not isinstance(item, Event))
        if gate.may_hold(held):
            self.channels.discard(channel)
        else:
            self.channels.add(channel)

    def clear(self) -> None:
        super().clear()
        self._closed.clear()

    def _waiting(self) -> set[int]:
        return super()._waiting() - (self._closed - self.channels)


def _begins_message(item: SpanningSerializer | Event) -> bool:
    """Return whether an item is a message with rows of which nothing is in a segment yet."""
    return not isinstance(item, Event) and item.remaining == item.size and item.rest[0][4] == Tag.RECORDS
