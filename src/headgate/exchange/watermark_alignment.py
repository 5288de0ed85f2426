"""Watermark alignment: a subtask of a source waits while its watermark is too far ahead of the slowest subtask's.

Without it, a source that reads several old files at once keeps all windows open between the slowest file's time and the
fastest file's. The driver has an `AlignmentGroup` for each source. The group gets the watermarks of all subtasks, and
answers with a bound: the lowest watermark plus the allowed drift (Flink: FLIP-182). Event times are microseconds since
the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headgate.records.elements import MAX_TIME, MIN_TIME

#: A subtask reports a watermark when it has risen by this share of the drift since the last report.
_SHARE: Final = 0.25
#: The longest time, in seconds, until a subtask reports a watermark that has risen by less.
_LATEST: Final = 0.1


class AlignmentGroup:
    """The watermarks of all subtasks of one source.

    A subtask that is idle, has no split or has ended does not count. A subtask that has a split but no rows yet counts:
    no other subtask may be far ahead of it. Until all subtasks have reported, the bound is MIN_TIME, so all wait.

    >>> group = AlignmentGroup(2, drift=60)
    >>> group.on_report(0, 100), group.on_report(1, 30), group.on_report(1, 50), group.on_report(1, None)
    (None, 90, 110, 160)
    """

    def __init__(self, subtasks: int, drift: int) -> None:
        self._missing = subtasks
        self._drift = drift
        self._watermarks: dict[int, int | None] = {}
        self.bound = MIN_TIME

    def on_report(self, subtask: int, watermark: int | None) -> int | None:
        """Record a subtask's watermark, or None if the subtask does not count. Returns the bound if it has changed."""
        self._missing -= subtask not in self._watermarks
        self._watermarks[subtask] = watermark
        if self._missing:
            return None
        least = min((each for each in self._watermarks.values() if each is not None), default=MAX_TIME)
        before, self.bound = self.bound, min(least + self._drift, MAX_TIME)
        return None if self.bound == before else self.bound


class AlignedSubtask:
    """One subtask of a source: it may read while its watermark is at most `bound`. `send` sends a report to the driver.

    The task's thread calls `report`. Another thread may set `bound`, and then wakes the task. `pause` is the least time
    between two reports of a subtask that may read, in seconds.
    """

    def __init__(self, drift: int, pause: float, send: Callable[[int | None], None]) -> None:
        self._step = int(drift * _SHARE)
        self._pause = pause
        self._send = send
        self._reported: int | None = None
        self._has_reported = False
        self._reported_at = float("-inf")
        self.bound = MIN_TIME

    def report(self, now: float, watermark: int | None, *, waits: bool) -> None:
        """Report the subtask's watermark to the driver, if it is new and due. None: the subtask does not count.

        A new watermark is due at once if the subtask `waits`. `now` is in seconds of any clock.
        """
        if not self.has_news(watermark):
            return
        if self._is_urgent(watermark, waits) or self._is_due(now, watermark):
            self._has_reported, self._reported, self._reported_at = True, watermark, now
            self._send(watermark)

    def has_news(self, watermark: int | None) -> bool:
        """Return whether the driver does not know this watermark."""
        return not self._has_reported or watermark != self._reported

    @property
    def next_report(self) -> float:
        """The latest time of the next report, if there is news."""
        return self._reported_at + _LATEST

    def _is_urgent(self, watermark: int | None, waits: bool) -> bool:
        return waits or not self._has_reported or watermark is None or self._reported is None

    def _is_due(self, now: float, watermark: int | None) -> bool:
        assert watermark is not None and self._reported is not None
        is_far = watermark >= self._reported + self._step
        return now >= (self._reported_at + self._pause if is_far else self.next_report)
