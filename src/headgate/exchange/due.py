"""DueOutput: the messages and events of a writer that are complete but not in segments yet, in order per channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingCount
from headgate.records.events import CheckpointBarrier, Event
from headgate.records.spanning import SpanningSerializer


class DueOutput:
    """The queues of messages and events that wait for segments of a partition: the *due* items of a writer.

    Only the writer's task thread uses them. `count`, the writer's count, includes the bytes of due messages that are in
    no segment. `channels` holds the channels that have due items.
    """

    def __init__(self, partition: ResultPartition, count: PendingCount) -> None:
        self._partition = partition
        self._count = count
        self._items: list[deque[SpanningSerializer | Event]] = [deque() for _ in partition.subpartitions]
        self._flush_when_drained: set[int] = set()
        self.channels: set[int] = set()

    def put(self, channel: int, item: SpanningSerializer | Event) -> None:
        """Append an item to a channel's queue. The bytes that fit go into segments at once."""
        self._items[channel].append(item)
        if not isinstance(item, Event):
            self._count.bytes += item.remaining
        self.channels.add(channel)
        self._write(channel)

    def drain(self, overdraft: bool) -> bool:
        """Move due items into free segments, or into overdraft, and return whether all of them fitted."""
        for channel in list(self.channels):
            self._write(channel, overdraft)
        return not self.channels

    def flush(self, channel: int) -> None:
        """Make all items of a channel visible to the reader. A due item becomes visible when it is in segments."""
        if self._items[channel]:
            self._flush_when_drained.add(channel)
        else:
            self._partition.flush(channel)

    def overtake(self, barrier: CheckpointBarrier) -> list[list[memoryview]]:
        """Send a barrier ahead of all items here and in the partition.

        Returns, per channel, a copy of the bytes that the barrier overtakes. The bytes stay queued.
        """
        partition = self._partition
        return [[*partition.overtake(channel, barrier), *_bytes_of(due)] for channel, due in enumerate(self._items)]

    def holds_barrier(self, checkpoint: int) -> bool:
        """Return whether the barrier of this checkpoint has a timeout and is still queued here, for any channel."""
        return any(_is_timed(item, checkpoint) for due in self._items for item in due)

    def prioritise(self, channel: int, checkpoint: int) -> list[memoryview] | None:
        """Let a checkpoint's barrier overtake the items before it, in this queue or in the partition.

        Returns the bytes that the barrier overtakes, or None when the barrier is no longer queued.
        """
        due = self._items[channel]
        for position, item in enumerate(due):
            if isinstance(item, CheckpointBarrier) and _is_timed(item, checkpoint):
                before = _bytes_of(islice(due, position))
                del due[position]
                self._flush_when_drained.add(channel)  # a barrier in order would have flushed the items before it
                overtaken = [*self._partition.overtake(channel, item.as_priority()), *before]
                self._write(channel)
                return overtaken
        return self._partition.prioritise(channel, checkpoint)

    def has(self, channel: int) -> bool:
        """Return whether a channel has due items."""
        return bool(self._items[channel])

    def is_gated(self) -> bool:
        """Return whether a throttle's gate holds items back, and the task must wait for it."""
        return False

    def clear(self) -> None:
        """Drop all items. The owner resets the count."""
        self.channels.clear()
        for due in self._items:
            due.clear()

    def validate(self) -> int:
        """Return the number of message bytes that are in no segment.

        Raises AssertionError when `channels` does not match the queues.
        """
        waiting = self._waiting()
        assert waiting == self.channels, f"items are due for channels {waiting}, but noted for {self.channels}"
        return sum(item.remaining for due in self._items for item in due if not isinstance(item, Event))

    def _waiting(self) -> set[int]:
        """Return the channels that must be in `channels`."""
        return {channel for channel, items in enumerate(self._items) if items}

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
    """Return whether an item is the barrier of this checkpoint and may still overtake, because it has a timeout."""
    return isinstance(item, CheckpointBarrier) and item.id == checkpoint and item.is_announced


def _bytes_of(due: Iterable[SpanningSerializer | Event]) -> list[memoryview]:
    """Return the bytes of due items that are in no segment yet."""
    return [piece for item in due if not isinstance(item, Event) for piece in item.rest]
