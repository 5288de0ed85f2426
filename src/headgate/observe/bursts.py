"""Find bursts: a source sends more rows than usual, and the slow tasks are as fast as before."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from headgate.observe.finding import Cause
from headgate.observe.metrics_window import Window
from headgate.observe.roots import HOT, SlowTasks

#: The number of earlier windows from which the usual rate is computed.
_USUAL: Final = 3
#: A burst has at least `_MORE` times the usual rate of rows. Tasks count as slower than before if they need more than
#: `_SLOWER` times as long for a row.
_MORE, _SLOWER = 1.5, 1.5


def burst_cause(windows: Sequence[Window], root: SlowTasks) -> Cause | None:
    """Return the burst that makes the tasks of `root` slow in the last window, or None if there is no burst.

    The earlier windows give the usual rate of rows and the usual speed of the tasks. If the tasks need longer for a row
    than before, the number of rows is not the cause.
    """
    earlier, window = windows[:-1][-_USUAL:], windows[-1]
    if len(earlier) < _USUAL or any(each.busy(root.vertex) >= HOT for each in earlier[:-1]):
        return None
    usual = median(_coming(each, root.vertex) for each in earlier)
    before = [rate for each in earlier[:-1] if (rate := _true_rate(each, root)) is not None]
    now = _true_rate(window, root)
    if not before or now is None or now * _SLOWER < median(before):
        return None
    times = _coming(window, root.vertex) / usual if usual > 0 else 0.0
    if times < _MORE:
        return None
    return Cause(
        name="burst",
        text=f"{times:.1f} times as many rows come as in the seconds before, and it is as fast as it was",
        evidence={"times_usual": times, "rows_per_second": _coming(window, root.vertex)},
    )


def _coming(window: Window, vertex: int) -> float:
    """Return the rows/s that producers send to a vertex. For a source, return the rows/s that it reads."""
    rows = window.inflow(vertex) if window.topology.producers(vertex) else window.taken(vertex)
    return rows / window.seconds


def _true_rate(window: Window, root: SlowTasks) -> float | None:
    """Return the rows that the root's tasks take per second of their work, or None if they took no rows."""
    subtasks = {task.subtask for task in root.tasks}
    tasks = [task for task in window.of(root.vertex) if task.subtask in subtasks]
    worked = sum(task.busy for task in tasks) * window.seconds
    rows = sum(task.rows_in for task in tasks)
    return rows / worked if worked > 0 and rows else None
