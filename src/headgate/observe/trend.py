"""Decide from a job's last windows whether the job falls behind or is stuck."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final

from headgate.observe.finding import Severity
from headgate.observe.metrics_window import OperatorWindow, Window
from headgate.observe.roots import never_idles, queue_grows

#: Lag grows if it increases by more than this many seconds per second, in each of the last windows.
_GROWTH: Final = 0.05
#: The number of windows in which lag must grow.
WINDOWS: Final = 3
#: The most windows in which the growth of a queue is looked for.
_MOST_WINDOWS: Final = 6
#: A smaller lag, in seconds, does not count. A batch or a garbage collection may cause it.
_LEAST_LAG: Final = 1.0
#: A watermark that is older than this many seconds does not go by the clock.
_OF_TODAY: Final = 86_400.0
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
    """Return whether a lag has grown in each of the last windows, or the queue before a vertex grows.

    First the queue before a slow vertex grows, then those before its producers, which wait for it. The lag of a source
    grows only when all these queues are full.
    """
    latest = windows[-WINDOWS:]
    if len(latest) < WINDOWS:
        return False
    if any(_queue_keeps_growing(windows, vertex.id) for vertex in latest[-1].topology.vertices):
        return True
    growths = [dict(_growths(window)) for window in latest]
    return any(all(growth.get(lag, 0.0) > _GROWTH for growth in growths) for lag in growths[-1])


def _queue_keeps_growing(windows: Sequence[Window], vertex: int) -> bool:
    """Return whether a vertex never idles and its queue grows in both halves of the last windows, three or more.

    In a single window the queue may shrink: a slow task may need several windows for a batch, and takes all rows that
    wait as the next one. A queue that grows in one half only may be one that fills when a job starts.
    """
    latest = list(takewhile(lambda window: never_idles(window, vertex), reversed(windows[-_MOST_WINDOWS:])))
    return any(
        queue_grows(latest[: number // 2], vertex) and queue_grows(latest[number // 2 : number], vertex)
        for number in range(WINDOWS, len(latest) + 1)
    )


def _growths(window: Window) -> Iterator[tuple[tuple[str, int, int], float]]:
    """Yield the growth of each lag, in seconds per second, by its kind, its operator and its subtask.

    Small lags are left out.
    """
    for task in window.tasks:
        for operator in task.operators.values():
            for kind, lag_of in _LAGS.items():
                lag = lag_of(operator, window.end)
                if lag is not None and lag[0] >= _LEAST_LAG:
                    yield (kind, operator.id, task.subtask), lag[1]


#: A lag in seconds, and its growth per second.
_Lag = tuple[float, float]


def _of_due_rows(operator: OperatorWindow, _now: float) -> _Lag | None:
    """The lag of a source with a schedule."""
    return None if operator.lag_growth is None else (operator.lag_s or 0.0, operator.lag_growth)


def _of_unread_messages(operator: OperatorWindow, _now: float) -> _Lag | None:
    """The time that a source needs for the messages that wait in its input, at the rate at which it reads."""
    if not operator.unread or operator.unread_growth is None:
        return None
    rate = max(1.0, operator.rows_in / operator.seconds)
    return sum(operator.unread.values()) / rate, sum(operator.unread_growth.values()) / rate


def _of_watermark(operator: OperatorWindow, now: float) -> _Lag | None:
    """The time by which event time is behind the clock. Old rows, which are read again, do not go by the clock."""
    if operator.watermark is None or operator.watermark_growth is None or not operator.rows_in or operator.is_idle:
        return None
    lag = now - operator.watermark / 1e6
    return None if lag > _OF_TODAY else (lag, 1.0 - operator.watermark_growth)


def _of_markers(operator: OperatorWindow, _now: float) -> _Lag | None:
    """The age of the latency markers that reached the operator."""
    return None if operator.latency_growth is None else (operator.latency_s or 0.0, operator.latency_growth)


_LAGS: Final[Mapping[str, Callable[[OperatorWindow, float], _Lag | None]]] = {
    "due rows": _of_due_rows,
    "unread messages": _of_unread_messages,
    "watermark": _of_watermark,
    "latency": _of_markers,
}
