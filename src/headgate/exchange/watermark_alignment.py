"""Watermark alignment: a subtask of a source waits while its watermark is too far ahead of the slowest subtask's.

Without it, a source that reads several old files at once keeps all windows open between the slowest file's time and the
fastest file's. The driver has an `AlignmentGroup` for each source, or for the sources with the same `group`. It gets
the watermarks of all subtasks, and answers with a bound for each source: the lowest watermark plus the source's drift
(Flink: FLIP-182). Event times are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from headgate.records.elements import MAX_TIME, MIN_TIME

#: A subtask reports a watermark when it has risen by this share of the drift since the last report.
_SHARE: Final = 0.25
#: The longest time, in seconds, until a subtask reports a watermark that has risen by less.
_LATEST: Final = 0.1


class AlignmentGroup:
    """The watermarks of all subtasks of the sources that wait for each other.

    `drifts` has the drift of each source, by its node. `subtasks` is the number of subtasks of all sources. A subtask
    that is idle, has no split or has ended does not count. A subtask that has a split but no rows yet counts: no other
    subtask may be far ahead of it. Until all subtasks have reported, the bounds are MIN_TIME, so all wait.

    >>> group = AlignmentGroup({1: 60, 2: 10}, subtasks=2)
    >>> group.on_report(1, 0, 100), group.on_report(2, 0, 30), group.on_report(2, 0, None)
    ({}, {1: 90, 2: 40}, {1: 160, 2: 110})
    """

    def __init__(self, drifts: Mapping[int, int], subtasks: int) -> None:
        self._drifts = drifts
        self._missing = subtasks
        self._watermarks: dict[tuple[int, int], int | None] = {}
        self._least = MIN_TIME - 1

    def on_report(self, node: int, subtask: int, watermark: int | None) -> dict[int, int]:
        """Record a subtask's watermark, or None if the subtask does not count.

        Returns the new bound of each source, by its node. Returns nothing if the bounds have not changed.
        """
        self._missing -= (node, subtask) not in self._watermarks
        self._watermarks[node, subtask] = watermark
        if self._missing:
            return {}
        least = min((each for each in self._watermarks.values() if each is not None), default=MAX_TIME)
        if least == self._least:
            return {}
        self._least = least
        return {source: min(least + drift, MAX_TIME) for source, drift in self._drifts.items()}


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
