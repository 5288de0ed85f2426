"""BisectedSleep: how long a source sleeps after each message, found by bisection, as JStorm 2.1's controller."""

from __future__ import annotations


class BisectedSleep:
    """Searches the whole milliseconds of sleep at which the slowest task just keeps up.

    `start` lengthens the sleep, and `stop` shortens it, by half the distance to the last bound on that side. Facts:
    JStorm 2.1.1, class `BackpressureController`.

    >>> sleep = BisectedSleep()
    >>> sleep.start(flow_ms=8)
    >>> sleep.milliseconds
    8
    >>> [sleep.stop(), sleep.milliseconds]
    [False, 4]
    >>> sleep.start(flow_ms=8)
    >>> sleep.milliseconds
    6
    """

    __slots__ = ("_high", "_low", "milliseconds")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.milliseconds = self._low = self._high = 0

    def start(self, flow_ms: int) -> None:
        """Sleep longer. `flow_ms` is how long the congested task worked on its last message, in whole milliseconds."""
        self.milliseconds = self._longer(flow_ms)
        self._high = max(self._high, self.milliseconds)

    def _longer(self, flow_ms: int) -> int:
        sleep = self.milliseconds
        if flow_ms > self._high:
            return flow_ms
        if flow_ms <= 0 or sleep >= self._high:
            return sleep + 1
        limit = self._high if sleep >= flow_ms else flow_ms
        return (limit + sleep + 1) // 2

    def stop(self) -> bool:
        """Sleep less. Return whether the sleep is over."""
        if self.milliseconds == self._low:
            self._low = 0
        self.milliseconds = (self._low + self.milliseconds) // 2
        if not self.milliseconds:
            self._reset()
            return True
        self._low = self.milliseconds
        return False
