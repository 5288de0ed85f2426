"""Compare the subtasks of a vertex: how many rows each took, and how long it needed for a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.observe.metrics_window import TaskWindow, Window, peers
from headgate.observe.roots import SlowTasks

#: With fewer batches than this, the rows of a task depend on when its batches begin and end.
_BATCHES: Final = 3


@dataclass(frozen=True, slots=True)
class PeerRows:
    """The rows that the subtasks of one vertex took, and the seconds of their work, by subtask."""

    rows: dict[int, int]
    seconds: dict[int, float]

    def usual_rows(self, subtasks: Iterable[int]) -> float:
        return peers([float(self.rows[each]) for each in subtasks])

    def usual_rate(self, subtasks: Iterable[int]) -> float:
        """Return the usual number of rows per second of work. Subtasks that took no rows do not count."""
        return peers(
            [self.rows[each] / self.seconds[each] for each in subtasks if self.rows[each] and self.seconds[each] > 0]
        )


def peer_rows(windows: Sequence[Window], root: SlowTasks) -> PeerRows:
    """Return the rows of the latest windows: of as many windows as contain three batches of each slow task."""
    hot = [task.subtask for task in root.tasks]
    rows: dict[int, int] = {}
    seconds: dict[int, float] = {}
    batches: dict[int, int] = {}
    for window in reversed(windows):
        for task in window.of(root.vertex):
            rows[task.subtask] = rows.get(task.subtask, 0) + task.rows_in
            seconds[task.subtask] = seconds.get(task.subtask, 0.0) + task.busy * window.seconds
            batches[task.subtask] = batches.get(task.subtask, 0) + _batches(task)
        if all(batches[each] >= _BATCHES for each in hot):
            break
    return PeerRows(rows, seconds)


def with_most_rows(windows: Sequence[Window], root: SlowTasks) -> SlowTasks:
    """Return the root without the tasks that took less than half of the rows of the one that took most."""
    rows = peer_rows(windows, root).rows
    most = max(rows[task.subtask] for task in root.tasks)
    return replace(root, tasks=tuple(task for task in root.tasks if 2 * rows[task.subtask] >= most))


def _batches(task: TaskWindow) -> int:
    return next(iter(task.operators.values())).batches_in
