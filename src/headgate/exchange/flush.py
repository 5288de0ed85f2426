"""When a writer with `buffer_timeout="adaptive"` sends messages that are not full.

A channel is flushed when its consumer is *starved*: it has none queued, and has consumed what it was sent, as its
credit tells. What is for a busy consumer gathers; so of no channel there is more than one small message on its way, and
a thousand channels share what their consumer can do. A flush costs time, the reader's too, and many small ones cost
more than few large ones. So a writer spends a bounded share of its time on them: a large one while it is idle, a small
one while it has rows to work on or is back-pressured: then a consumer is behind, and each small message more puts it
further behind.
"""

from __future__ import annotations

from typing import Final

#: The largest share of the time to be spent on flushing, by whether the writer's task waits for nothing but input.
BUSY_SHARE: Final = 0.005
IDLE_SHARE: Final = 0.75
#: Whatever a flush costs, the next follows in so many seconds: one that was held up does not hold up those behind it.
MAX_INTERVAL: Final = 0.3


class AdaptiveFlush:
    """Says when the next flush of starved channels may be; times are seconds of any clock."""

    __slots__ = ("_cost", "_ended")

    def __init__(self) -> None:
        self._cost = 0.0
        self._ended = float("-inf")

    def earliest(self, *, is_idle: bool) -> float:
        """When flushing may go on: t x (1 / share - 1) after a flush that took t, `MAX_INTERVAL` at the most."""
        share = IDLE_SHARE if is_idle else BUSY_SHARE
        return self._ended + min(MAX_INTERVAL, self._cost * (1 / share - 1))

    @property
    def latest(self) -> float:
        """When to look again at the channels that were not starved, whatever else there is to do."""
        return self._ended + MAX_INTERVAL

    def flushed(self, began: float, ended: float) -> None:
        """A look at the channels, and the flush of those that were starved, has been made."""
        self._cost = ended - began
        self._ended = ended
