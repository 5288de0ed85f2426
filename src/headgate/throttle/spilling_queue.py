"""The counts of a bounded input queue whose overflow has no limit, as Storm 2's `JCQueue`."""

from __future__ import annotations


class SpillingQueue:
    """Counts the messages of one input queue: at most `capacity` in its bounded part, and the rest in the overflow.

    Messages of other TaskManagers *spill*: if they find the bounded part full, or if the overflow still has messages,
    they go to the overflow. Messages of the same TaskManager never do: their producer waits for room in the
    bounded part. The consumer takes the bounded part first, until it is empty. Then it takes as many messages from the
    overflow as are there at that moment, and starts again with the bounded part.

    >>> queue = SpillingQueue(capacity=1)
    >>> [queue.add_remote(), queue.add_remote()]
    [False, True]
    >>> queue.bounded, queue.overflow
    (1, 1)
    """

    __slots__ = ("_capacity", "_turn", "bounded", "overflow")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._turn = 0  # messages that the consumer still takes from the overflow before it looks at the bounded part
        self.bounded = 0
        self.overflow = 0

    @property
    def has_room(self) -> bool:
        return self.bounded < self._capacity

    def add_local(self) -> None:
        """Count a message of the same TaskManager. Its producer has asked `has_room`."""
        self.bounded += 1

    def add_remote(self) -> bool:
        """Count a message of another TaskManager. Return whether it spilled."""
        if self.has_room and not self.overflow:
            self.bounded += 1
            return False
        self.overflow += 1
        return True

    def take(self) -> None:
        """Count a message that the consumer takes."""
        if not self._turn and self.bounded:
            self.bounded -= 1
            return
        self._turn = (self._turn or self.overflow) - 1
        self.overflow -= 1
