"""When a writer with `buffer_timeout="adaptive"` sends messages that are not full.

A channel is flushed when its consumer is *starved*: it has none queued, and has consumed what it was sent, as its
credit tells. What is for a busy consumer gathers; so of no channel there is more than one small message on its way, and
a thousand channels share what their consumer can do. A flush costs time, the reader's too, and many small ones cost
more than few large ones. So a writer spends a bounded share of its time on them: a small one while it has rows to work
on, a larger one while it would wait anyway.
"""

from __future__ import annotations

from typing import Final

#: The largest share of the time to be spent on flushing, by whether the writer's task has other work.
BUSY_SHARE: Final = 0.02
WAITING_SHARE: Final = 0.75
#: Whatever a flush costs, the next follows in so many seconds: one that was held up does not hold up those behind it.
MAX_INTERVAL: Final = 0.3


class AdaptiveFlush:
    """Says when the next flush of starved channels may be; times are seconds of any clock."""

    __slots__ = ("_cost", "_ended")

    def __init__(self) -> None:
        self._cost = 0.0
        self._ended = float("-inf")

    def earliest(self, *, waiting: bool) -> float:
        """When flushing may go on: t x (1 / share - 1) after a flush that took t, `MAX_INTERVAL` at the most."""
        share = WAITING_SHARE if waiting else BUSY_SHARE
        return self._ended + min(MAX_INTERVAL, self._cost * (1 / share - 1))

    def flushed(self, began: float, ended: float) -> None:
        """A look at the channels, and the flush of those that were starved, has been made."""
        self._cost = ended - began
        self._ended = ended
