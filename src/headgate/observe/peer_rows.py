"""Compare the subtasks of a vertex: how many rows each took, and how long it needed for a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.observe.metrics_window import TaskWindow, Window, peers
from headgate.observe.roots import SlowTasks

#: With fewer batches than this, the rows of a task depend on when its batches begin and end.
_BATCHES: Final = 3
#: If a vertex takes this many times the rows that come, it catches up. Batches that end by chance within the windows
#: make less of a difference.
_CATCHES_UP: Final = 1.6


@dataclass(frozen=True, slots=True)
class PeerRows:
    """The rows that the subtasks of one vertex took, and the seconds of their work, by subtask."""

    rows: dict[int, int]
    seconds: dict[int, float]
    #: The rows that producers emitted for the vertex in this time.
    come: int = 0

    @property
    def are_old(self) -> bool:
        """Whether most rows had waited before. Then a subtask took more than its peers because its queue was longer."""
        return 0 < self.come * _CATCHES_UP < sum(self.rows.values())

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
    come = 0
    for window in reversed(windows):
        come += window.inflow(root.vertex)
        for task in window.of(root.vertex):
            rows[task.subtask] = rows.get(task.subtask, 0) + task.rows_in
            seconds[task.subtask] = seconds.get(task.subtask, 0.0) + task.busy * window.seconds
            batches[task.subtask] = batches.get(task.subtask, 0) + _batches(task)
        if all(batches[each] >= _BATCHES for each in hot):
            break
    return PeerRows(rows, seconds, come)


def with_most_rows(root: SlowTasks, amounts: Mapping[int, float]) -> SlowTasks:
    """Return the root without the tasks that get less than half of what the one with most rows gets.

    `amounts` has what comes for each subtask, see `amounts_of_rows`. If it is empty, all tasks stay.
    """
    most = max(amounts.get(task.subtask, 0.0) for task in root.tasks)
    tasks = tuple(task for task in root.tasks if 2 * amounts.get(task.subtask, 0.0) >= most)
    return replace(root, tasks=tasks, all=root.all and len(tasks) == len(root.tasks))


def amounts_of_rows(windows: Sequence[Window], root: SlowTasks) -> Mapping[int, float]:
    """Return how much comes for each subtask of the root's vertex. Only ratios of these amounts count.

    If some subtasks are slow, these are the rows that each took. If all are slow, each takes what it can, so these are
    the bytes that come for each; they are empty if a TaskManager has too many channels to report all.
    """
    return _coming_bytes(windows[-1], root.vertex) if root.all else peer_rows(windows, root).rows


def _coming_bytes(window: Window, vertex: int) -> dict[int, float]:
    """Return the bytes that came for each subtask in the window: those that were sent, and those that wait."""
    topology = window.topology
    coming = dict.fromkeys(range(topology.vertices[vertex].parallelism), 0.0)
    for edge in topology.edges:
        if edge.target != vertex:
            continue
        channels = window.channels.of(edge.name)
        if len(channels) != topology.vertices[edge.source].parallelism * len(coming):
            return {}
        for channel in channels:
            if channel.bytes_per_second is None or channel.queued_growth is None or channel.consumer not in coming:
                return {}
            coming[channel.consumer] += (channel.bytes_per_second + channel.queued_growth) * window.seconds
    return coming


def _batches(task: TaskWindow) -> int:
    return next(iter(task.operators.values())).batches_in
