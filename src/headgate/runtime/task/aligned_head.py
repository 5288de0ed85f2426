"""The head of a source whose watermark is aligned: it reads only while its subtask is not too far ahead."""

from __future__ import annotations

from headgate.exchange.watermark_alignment import AlignedSubtask
from headgate.runtime.task.heads import MORE, WAIT, Head, SourceHead
from headgate.runtime.task.time_account import Wait


class AlignedSourceHead:
    """A `Head` around the head of a source, or around its throttle.

    While the subtask is too far ahead, its task is *throttled*: it is not idle, and its idle clock stands. Barriers,
    timers and a cancel do not wait.
    """

    def __init__(self, head: Head, source: SourceHead, alignment: AlignedSubtask) -> None:
        self._head = head
        self._source = source
        self._alignment = alignment
        self._is_ahead = False
        self._is_backpressured = False

    @property
    def waits_for(self) -> Wait:
        return Wait.THROTTLED if self._is_ahead else self._head.waits_for

    def step(self, now: float) -> float:
        source, alignment = self._source, self._alignment
        is_ahead = source.reached > alignment.bound and not (source.is_held or source.ends_now)
        if is_ahead != self._is_ahead:
            self._is_ahead = is_ahead
            self._hold_idle_clock(now)
        if is_ahead:
            alignment.report(now, source.reached, waits=True)
            return WAIT
        until = self._head.step(now)
        watermark = None if source.is_idle else source.reached
        alignment.report(now, watermark, waits=False)
        if until > MORE and alignment.has_news(watermark):
            return min(until, alignment.next_report)
        return until

    def end(self) -> None:
        self._head.end()
        self._alignment.report(0.0, None, waits=True)

    def on_backpressure(self, begins: bool, now: float) -> None:
        self._is_backpressured = begins
        self._hold_idle_clock(now)

    def _hold_idle_clock(self, now: float) -> None:
        self._head.on_backpressure(self._is_ahead or self._is_backpressured, now)

    def close(self) -> None:
        self._head.close()
