"""DueOutput: what a writer has cut and no segment has taken yet, in order for each channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.records.events import CheckpointBarrier, Event
from headgate.records.spanning import SpanningSerializer


class DueOutput:
    """Messages and events on their way into a partition; used by the writer's task thread only.

    `count` counts the bytes of messages that are in no segment. `channels` are those for which anything is due.
    """

    def __init__(self, partition: ResultPartition, count: PendingCount) -> None:
        self._partition = partition
        self._count = count
        self._items: list[deque[SpanningSerializer | Event]] = [deque() for _ in partition.subpartitions]
        self._flush_when_drained: set[int] = set()
        self.channels: set[int] = set()

    def put(self, channel: int, item: SpanningSerializer | Event) -> None:
        """Behind all that is due there; what fits goes into segments at once."""
        self._items[channel].append(item)
        if not isinstance(item, Event):
            self._count.bytes += item.remaining
        self.channels.add(channel)
        self._write(channel)

    def drain(self, overdraft: bool) -> bool:
        """Move what is due into segments that have come free, or into overdraft; returns whether all of it fitted."""
        for channel in list(self.channels):
            self._write(channel, overdraft)
        return not self.channels

    def flush(self, channel: int) -> None:
        """Let the reader see all that was put here; what is due there, as soon as it has left."""
        if self._items[channel]:
            self._flush_when_drained.add(channel)
        else:
            self._partition.flush(channel)

    def overtake(self, barrier: CheckpointBarrier) -> list[list[memoryview]]:
        """Send a barrier before everything that is here and in the partition. Returns, by channel, the bytes that it
        overtakes. They stay as they are."""
        partition = self._partition
        return [[*partition.overtake(channel, barrier), *_bytes_of(due)] for channel, due in enumerate(self._items)]

    def holds_barrier(self, checkpoint: int) -> bool:
        """A checkpoint's barrier with a timeout is still here, in one channel at least."""
        return any(_is_timed(item, checkpoint) for due in self._items for item in due)

    def prioritise(self, channel: int, checkpoint: int) -> list[memoryview] | None:
        """Have a checkpoint's barrier overtake what is before it, here or in the partition. Returns the bytes that it
        overtakes, None when it has left."""
        due = self._items[channel]
        for position, item in enumerate(due):
            if isinstance(item, CheckpointBarrier) and _is_timed(item, checkpoint):
                before = _bytes_of(islice(due, position))
                del due[position]
                self._flush_when_drained.add(channel)  # what is before it would have left with it
                overtaken = [*self._partition.overtake(channel, item.as_priority()), *before]
                self._write(channel)
                return overtaken
        return self._partition.prioritise(channel, checkpoint)

    def has(self, channel: int) -> bool:
        """Anything is due there."""
        return bool(self._items[channel])

    def clear(self) -> None:
        """Drop everything; its owner sets the count."""
        self.channels.clear()
        for due in self._items:
            due.clear()

    def validate(self) -> int:
        """Raises AssertionError unless `channels` are right. Returns the bytes of messages that are in no segment."""
        waiting = {channel for channel, items in enumerate(self._items) if items}
        assert waiting == self.channels, f"something is due for {waiting}, but noted for {self.channels}"
        return sum(item.remaining for due in self._items for item in due if not isinstance(item, Event))

    def _write(self, channel: int, overdraft: bool = False) -> None:
        due = self._items[channel]
        partition = self._partition
        while due:
            item = due[0]
            if isinstance(item, Event):
                partition.write_event(channel, item)
            else:
                before = item.remaining
                is_written = partition.write(channel, item, overdraft=overdraft)
                self._count.bytes -= before - item.remaining
                if not is_written:
                    return
            due.popleft()
        self.channels.discard(channel)
        if channel in self._flush_when_drained:
            self._flush_when_drained.discard(channel)
            partition.flush(channel)


def _is_timed(item: SpanningSerializer | Event, checkpoint: int) -> bool:
    """It is a checkpoint's barrier with a timeout, which may be asked to overtake."""
    return isinstance(item, CheckpointBarrier) and item.id == checkpoint and item.is_announced


def _bytes_of(due: Iterable[SpanningSerializer | Event]) -> list[memoryview]:
    """Of what is due, the bytes that are in no segment yet."""
    return [piece for item in due if not isinstance(item, Event) for piece in item.rest]
