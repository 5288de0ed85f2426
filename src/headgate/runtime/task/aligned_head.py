"""The head of a source with watermark alignment: the head stops reading while its watermark is too far ahead."""

from __future__ import annotations

from headgate.exchange.watermark_alignment import AlignedSubtask
from headgate.runtime.task.heads import MORE, WAIT, Head, SourceHead
from headgate.runtime.task.throttled_head import GatedSourceHead


class AlignedSourceHead(GatedSourceHead[Head]):
    """A `Head` that wraps the head of a source, or the source's throttle. While the subtask's watermark is above the
    alignment's bound, the head reads nothing. Barriers, timers and a cancel do not wait."""

    def __init__(self, head: Head, source: SourceHead, alignment: AlignedSubtask) -> None:
        super().__init__(head)
        self._source = source
        self._alignment = alignment

    def step(self, now: float) -> float:
        source, alignment = self._source, self._alignment
        is_ahead = source.reached > alignment.bound and not (source.is_held or source.ends_now)
        if is_ahead != self._is_throttled:
            self._throttle(is_ahead, now)
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
        super().end()
        self._alignment.report(0.0, None, waits=True)
