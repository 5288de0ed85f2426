"""LevelFlag: a queue raises it at a high mark and lowers it at a low mark, as Storm 1's `DisruptorQueue`."""

from __future__ import annotations

from headgate.throttle.ring_fill import RingFill


class LevelFlag:
    """Watches the number of messages in one queue of `capacity` messages and an overflow without limit.

    The marks are fractions of `capacity`, rounded down to whole messages. Only an added message raises the flag, and
    only a taken one lowers it.

    The high mark counts the occupied places (`RingFill`), also those of handled messages; the low mark counts only the
    messages that wait. So during a long batch the flag may fall and rise again at once.

    >>> flag = LevelFlag(capacity=1024, high=0.9, low=0.4)
    >>> flag.added(queued=920), flag.added(queued=921)
    (False, True)
    >>> flag.taken(queued=410), flag.taken(queued=409)
    (False, True)
    """

    __slots__ = ("_high", "_low", "_ring", "is_up")

    def __init__(self, capacity: int, high: float, low: float) -> None:
        self._ring = RingFill(capacity)
        self._high = int(capacity * high)
        self._low = int(capacity * low)
        self.is_up = False

    def added(self, queued: int) -> bool:
        """Note the fill after a message was added. Return whether the flag has risen now."""
        self._ring.added(queued)
        if self.is_up or self._ring.occupied < self._high:
            return False
        self.is_up = True
        return True

    def taken(self, queued: int) -> bool:
        """Note the fill after a message was taken. Return whether the flag has fallen now."""
        self._ring.taken(queued)
        if not self.is_up or queued > self._low:
            return False
        self.is_up = False
        return True
