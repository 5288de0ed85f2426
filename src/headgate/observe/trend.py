"""Decide from a job's last windows whether the job falls behind or is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.observe.finding import Severity
from headgate.observe.metrics_window import Window
from headgate.observe.roots import is_overrun

#: Lag grows if it increases by more than this many seconds per second, in each of the last windows.
_GROWTH: Final = 0.05
#: The number of windows in which lag must grow.
WINDOWS: Final = 3
#: A smaller lag, in seconds, does not count. A batch or a garbage collection may cause it.
_LEAST_LAG: Final = 1.0
#: A job that has work is stuck after this many seconds in which no row moved.
STUCK: Final = 10.0


def severity(windows: Sequence[Window]) -> Severity:
    """Return the severity of the job's findings. `windows` are the latest windows, the oldest first."""
    if is_stuck(windows):
        return Severity.STUCK
    return Severity.BEHIND if is_behind(windows) else Severity.LIMIT


def is_stuck(windows: Sequence[Window]) -> bool:
    """Return whether no row moved for `STUCK` seconds, while a task was busy or waited for room."""
    recent: list[Window] = []
    for window in reversed(windows):
        if any(operator.rows_in for task in window.tasks for operator in task.operators.values()):
            break
        recent.append(window)
    if not recent or recent[0].end - recent[-1].begin < STUCK:
        return False
    return any(task.busy + task.blocked > 0.5 for task in recent[0].tasks if not task.ended)


def is_behind(windows: Sequence[Window]) -> bool:
    """Return whether the lag of a source, or the queue before a vertex, has grown in each of the last windows."""
    latest = windows[-WINDOWS:]
    if len(latest) < WINDOWS:
        return False
    if any(all(is_overrun(window, vertex.id) for window in latest) for vertex in latest[-1].topology.vertices):
        return True
    growths = [_growths(window) for window in latest]
    return any(all(growth.get(reader, 0.0) > _GROWTH for growth in growths) for reader in growths[-1])


def _growths(window: Window) -> dict[tuple[int, int], float]:
    """Return the growth of lag, in seconds per second, by operator and subtask. Small lags are left out."""
    return {
        (operator.id, task.subtask): operator.lag_growth
        for task in window.tasks
        for operator in task.operators.values()
        if operator.lag_growth is not None and (operator.lag_s or 0.0) >= _LEAST_LAG
    }
