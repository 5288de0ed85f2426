"""`TransferQueue`: the messages of one TaskManager that wait for its connections to other TaskManagers (Storm)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headgate.exchange.blocking import Subpartition
from headgate.throttle.mechanism import Task


class TransferChannel:
    """The messages of one channel that wait for its connection."""

    def __init__(self, subpartition: Subpartition) -> None:
        self._subpartition = subpartition
        self._written = 0
        #: For each message that waits: the byte position of its end, counted from the channel's start.
        self._ends: deque[int] = deque()

    def put(self, size: int) -> None:
        self._written += size
        self._ends.append(self._written)

    def left(self) -> int:
        """Return how many messages have left for the connection since the last call."""
        before = len(self._ends)
        if self._subpartition.is_released:
            self._ends.clear()
        while self._ends and self._ends[0] <= self._subpartition.bytes_sent:
            self._ends.popleft()
        return before - len(self._ends)


class TransferQueue:
    """Counts the messages that wait for the connections of TaskManager `index`.

    `place` returns the TaskManager that runs a subtask, by the subtask's number. A lock of the caller protects the
    object and its channels.
    """

    def __init__(self, index: int, place: Callable[[int], int]) -> None:
        self._index = index
        self._place = place
        self._channels: list[TransferChannel] = []
        #: The messages that waited at the last look, and those that were added since then.
        self.waiting = 0

    def is_remote(self, task: Task) -> bool:
        """Return whether messages to this subtask need a connection."""
        return self._place(task[1]) != self._index

    def channel(self, task: Task, subpartition: Subpartition) -> TransferChannel | None:
        """Return the channel of the messages to a subtask. None: they need no connection."""
        if not self.is_remote(task):
            return None
        self._channels.append(TransferChannel(subpartition))
        return self._channels[-1]

    def put(self, channel: TransferChannel, size: int) -> None:
        """Add a message of `size` bytes, which waits for its connection."""
        self.waiting += 1
        channel.put(size)

    def look(self, channel: TransferChannel | None = None) -> int:
        """Remove the messages of a channel, or of all channels, that have left for their connections.

        Returns how many these are.
        """
        left = sum(each.left() for each in (self._channels if channel is None else [channel]))
        self.waiting -= left
        return left
