"""LevelFlag: a queue raises it at a high mark and lowers it at a low mark, as Storm 1's `DisruptorQueue`."""

from __future__ import annotations


class LevelFlag:
    """Watches the number of messages in one queue of `capacity` messages and an overflow without limit.

    The marks are fractions of `capacity`, rounded down to whole messages. The flag rises when a message is added, and
    falls when one is taken.

    A consumer of Storm handles all messages that it finds in the queue as one batch, and frees their room when it has
    handled the last one. So the high mark counts the messages of the batch that are already handled; the low mark does
    not. While Storm is in a long batch the flag may fall and rise again at once.

    >>> flag = LevelFlag(capacity=1024, high=0.9, low=0.4)
    >>> flag.added(queued=920), flag.added(queued=921)
    (False, True)
    >>> flag.taken(queued=410), flag.taken(queued=409)
    (False, True)
    """

    __slots__ = ("_capacity", "_handled", "_high", "_low", "_unhandled", "is_up")

    def __init__(self, capacity: int, high: float, low: float) -> None:
        self._capacity = capacity
        self._high = int(capacity * high)
        self._low = int(capacity * low)
        #: The messages of the consumer's batch: taken ones, whose room is not free yet, and those not taken.
        self._handled = self._unhandled = 0
        self.is_up = False

    def added(self, queued: int) -> bool:
        """Note the fill after a message was added. Return whether the flag has risen now."""
        if self.is_up or queued + self._handled < self._high:
            return False
        self.is_up = True
        return True

    def taken(self, queued: int) -> bool:
        """Note the fill after a message was taken. Return whether the flag has fallen now."""
        self._follow_batch(queued)
        if not self.is_up or queued > self._low:
            return False
        self.is_up = False
        return True

    def _follow_batch(self, queued: int) -> None:
        if not self._unhandled:  # the last batch is handled; the next one is what the queue itself holds
            self._handled, self._unhandled = 0, min(queued + 1, self._capacity)
        self._handled += 1
        self._unhandled -= 1
        if not queued:  # the next message finds an idle consumer
            self._handled = self._unhandled = 0
