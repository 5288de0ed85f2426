"""Decide when a writer with `buffer_timeout="adaptive"` or 0 sends messages that are not full.

With "adaptive", the writer flushes a channel when its consumer is *starved*: no buffer is queued for it, and its credit
shows that it has consumed all buffers sent. Rows for a busy consumer accumulate. Each channel therefore has at most one
small message in flight, so even a thousand channels do not flood their consumer with small messages. When the task
waits for input, the end of a full message, and the watermark behind it, leave even if the consumer is busy: it can do
nothing with the message before.

A flush costs time at the writer and at the reader. Many small flushes cost more than a few large ones. A writer
therefore spends a limited share of its time on flushing. The share is large while the writer is idle. The share is
small while the writer works or is back-pressured. Back-pressure means that a consumer is slow, and each small message
delays it more.
"""

from __future__ import annotations

from typing import Final

#: The largest share of its time that a writer spends on flushing: while its task is busy, and while it waits for input.
BUSY_SHARE: Final = 0.005
IDLE_SHARE: Final = 0.75
#: The longest wait after a flush, in seconds. It limits how long one slow flush delays the next flush.
MAX_INTERVAL: Final = 0.3
#: With `buffer_timeout=0`: the largest share of its time that a busy writer spends on flushing, and the longest wait
#: after a flush, in seconds.
PROMPT_SHARE: Final = 0.25
PROMPT_INTERVAL: Final = 0.001


class AdaptiveFlush:
    """The schedule for flushes of starved channels. Times are seconds of any clock."""

    __slots__ = ("_cost", "_ended")

    def __init__(self) -> None:
        self._cost = 0.0
        self._ended = float("-inf")

    def earliest(self, *, is_idle: bool) -> float:
        """Return the earliest time of the next flush.

        After a flush of t seconds the writer waits t x (1 / share - 1), but at most `MAX_INTERVAL`. The share is
        `IDLE_SHARE` or `BUSY_SHARE`.
        """
        share = IDLE_SHARE if is_idle else BUSY_SHARE
        return self._ended + min(MAX_INTERVAL, self._cost * (1 / share - 1))

    @property
    def latest(self) -> float:
        """The latest time of the next check of the channels that were not starved."""
        return self._ended + MAX_INTERVAL

    def flushed(self, began: float, ended: float) -> None:
        """Record when a check of the channels began and ended. The check includes the flush of the starved channels."""
        self._cost = ended - began
        self._ended = ended


class PromptFlush:
    """The schedule for flushes with `buffer_timeout=0`. Times are seconds of any clock.

    Batches that follow each other without a pause leave together if flushing would take more than `share` of the time.
    A task that has no further batch flushes at once, whatever the schedule says. With a `share` of 1, each batch leaves
    alone.

    >>> flush = PromptFlush(share=0.25)
    >>> flush.flushed(began=5.0, ended=5.0001)
    >>> round(flush.earliest, 6)
    5.0004
    """

    __slots__ = ("_earliest", "_factor")

    def __init__(self, share: float) -> None:
        self._factor = 1 / share - 1
        self._earliest = float("-inf")

    @property
    def earliest(self) -> float:
        """The earliest time of the next flush."""
        return self._earliest

    def flushed(self, began: float, ended: float) -> None:
        """Record when a flush began and ended."""
        self._earliest = ended + min(PROMPT_INTERVAL, (ended - began) * self._factor)
