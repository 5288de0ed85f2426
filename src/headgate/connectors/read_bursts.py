"""Decide when a source whose rows trickle reads: in bursts, with rests between them.

To wake a thread, and the threads behind it, costs far more processor time than a few rows, because caches lose the code
within a millisecond of sleep. So with `buffer_timeout="adaptive"` a source does not read each row of a trickle when it
is due. It reads all rows that are due, and then rests. Network cards moderate their interrupts in the same way.
"""

from __future__ import annotations

from typing import Final

#: The longest rest, in seconds. Rows of a trickle wait at most so long.
REST: Final = 0.020
#: A source trickles if fewer rows than these come in the time of a rest. A batch of more rows is worth a wake-up.
FEW_ROWS: Final = 8192


class ReadBursts:
    """The bursts of one source. Times are seconds of the monotonic clock.

    Rests end at whole multiples of `REST`, so all sources of a machine wake at the same time. The threads behind them
    then find more of their code in the caches. Rows that come after a longer pause do not wait.

    >>> bursts = ReadBursts()
    >>> bursts.add(rows=3)
    >>> bursts.end(now=5.001)  # a single burst does not tell how fast rows come
    5.001
    >>> bursts.add(rows=3)
    >>> round(bursts.end(now=5.002), 6)
    5.02
    """

    __slots__ = ("_began", "_rows", "rests_until")

    def __init__(self) -> None:
        #: When the last burst began. Before the first burst it is infinity, so that the first is no trickle.
        self._began = float("inf")
        self._rows = 0
        #: The time before which the source does not read.
        self.rests_until = float("-inf")

    def add(self, rows: int) -> None:
        """Count rows of the burst."""
        self._rows += rows

    def end(self, now: float) -> float:
        """End the burst that began at `now`, because nothing more is due. Returns the time of the next read.

        The source does not rest after its first burst, nor after a burst without rows.
        """
        if not self._rows:
            return now
        is_trickle = self._rows * REST < FEW_ROWS * (now - self._began)
        self._began, self._rows = now, 0
        self.rests_until = (now // REST + 1) * REST if is_trickle else now
        return self.rests_until
