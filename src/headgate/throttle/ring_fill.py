"""RingFill: the occupied places of a bounded queue whose consumer frees the places of a batch together."""

from __future__ import annotations


class RingFill:
    """Counts the occupied places of an LMAX Disruptor, the queue of Storm 1 and JStorm 2.1.

    The consumer handles all messages that it finds in the queue as one batch. It frees their places when it has handled
    the last one. So a place is occupied by a message that waits, or by a handled message of the batch.

    >>> ring = RingFill(capacity=2)
    >>> ring.added(queued=1), ring.added(queued=2), ring.has_room
    (None, None, False)
    >>> ring.taken(queued=1), ring.occupied
    (None, 2)
    >>> ring.taken(queued=0), ring.occupied
    (None, 0)
    """

    __slots__ = ("_capacity", "_handled", "_queued", "_unhandled")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queued = 0
        #: The messages of the consumer's batch: taken ones, whose places are not free yet, and those not taken.
        self._handled = self._unhandled = 0

    @property
    def occupied(self) -> int:
        return self._queued + self._handled

    @property
    def has_room(self) -> bool:
        return self.occupied < self._capacity

    def added(self, queued: int) -> None:
        """Note that a message was added to the queue, which now has `queued` messages."""
        self._queued = queued

    def taken(self, queued: int) -> None:
        """Note that the consumer took a message from the queue, which now has `queued` messages."""
        self._queued = queued
        if not self._unhandled:  # the last batch is handled; the next one is what the queue itself holds
            self._handled, self._unhandled = 0, min(queued + 1, self._capacity)
        self._handled += 1
        self._unhandled -= 1
        if not queued:  # the next message finds an idle consumer
            self._handled = self._unhandled = 0
