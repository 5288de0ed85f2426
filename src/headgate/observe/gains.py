"""Estimate how many times as many rows a job would carry if one place no longer limited the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.observe.causes import factor_text
from headgate.observe.edge_window import EdgeWindow
from headgate.observe.finding import Remedy
from headgate.observe.interpreter_lock import holder_of_the_lock, wait_for_the_lock
from headgate.observe.metrics_window import ProcessWindow, TaskWindow, Window
from headgate.observe.own_work import nearly_empty
from headgate.observe.topology import VertexShape

#: The largest gain that is reported for one remedy, and for full buffers.
_MOST: Final = 4.0
_MOST_OF_BUFFERS: Final = 10.0
#: The number of windows whose mean counts where a window has too few samples.
_WINDOWS: Final = 4
#: The `limit` of a gain that is enough for the sources to keep their schedules.
PACE: Final = "the sources keep their pace"


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain: `factor` times as many rows. `limit` says what would then limit the job, or is empty if unknown.

    If `at_least` is True, `factor` is the largest one that is reported, and nothing is known to limit the gain to it.
    If `if_free` is True, the gain needs free processors, and it is not known whether there are any.
    """

    factor: float
    limit: str
    at_least: bool = False
    if_free: bool = False

    @property
    def times(self) -> str:
        """The gain for a sentence.

        >>> Gain(2.0, "'sums' is the limit").times, Gain(4.0, "", at_least=True).times
        ('2.0 times as many rows', 'at least 4.0 times as many rows')
        >>> Gain(2.0, "", if_free=True).times
        '2.0 times as many rows if processors are free'
        """
        return f"{'at least ' if self.at_least else ''}{self._times}{' if processors are free' if self.if_free else ''}"

    @property
    def at_best(self) -> str:
        """The gain for a sentence about a remedy that may gain less, since it may remove only a part of the cause.

        >>> Gain(2.0, "'sums' is the limit").at_best, Gain(4.0, "", at_least=True).at_best
        ('would carry up to 2.0 times as many rows', 'could carry 4.0 times as many rows or more')
        """
        return f"could carry {self._times} or more" if self.at_least else f"would carry up to {self._times}"

    @property
    def _times(self) -> str:
        return f"{factor_text(self.factor)} times as many rows"

    def remedy(self, text: str) -> Remedy:
        """Return a remedy with this gain."""
        return Remedy(text=text, gain=self.factor, limit=self.limit, at_least=self.at_least)


def next_limit(window: Window, root: int) -> Gain:
    """Return the gain if the vertex `root` took no time.

    Another vertex that would get more rows may limit the gain, see `_with_more_rows`. A vertex that is busy for a share
    u of the time can take 1/u times as many rows.
    A vertex that is busy because it waits for the interpreter lock of `root` is no limit.
    Sources with a schedule also limit the gain: they have no more rows than their schedule provides.
    """
    others = [
        vertex
        for vertex in _with_more_rows(window, root)
        if vertex.id != root and window.busy(vertex.id) > 0 and not _waits_for_the_lock_of(window, root, vertex.id)
    ]
    return _at_the_pace(window, root, _least(window, others))


def next_limit_of_exchange(window: Window, source: int) -> Gain:
    """Return the gain if an exchange that begins at the vertex `source` took no time, by the rules of `next_limit`."""
    return _at_the_pace(window, source, _least(window, _with_more_rows(window, source)))


def _least(window: Window, vertices: Sequence[VertexShape]) -> Gain:
    """Return how many times as many rows these vertices can take. The one that can take least limits the gain."""
    gain = Gain(_MOST, "", at_least=True)
    for vertex in vertices:
        busy = window.busy(vertex.id)
        factor = max(1.0, 1 / busy) if busy > 0 else _MOST
        if factor < gain.factor:
            gain = Gain(factor, f"{vertex.name!r} is the limit")
    return gain


def _with_more_rows(window: Window, root: int) -> list[VertexShape]:
    """Return the vertices that get more rows if `root` is faster: `root`, those upstream, and all to which these send.

    Other parts of the job keep their rates.
    """
    topology = window.topology
    above = topology.upstream(root) | {root}
    reached = above.union(*(topology.downstream(vertex) for vertex in above))
    return [vertex for vertex in topology.vertices if vertex.id in reached]


def _waits_for_the_lock_of(window: Window, root: int, vertex: int) -> bool:
    """Return whether a busy vertex only waits for the interpreter lock, and the tasks of `root` hold the lock."""
    tasks = window.of(vertex)
    return wait_for_the_lock(window, tasks) and any(each.vertex == root for each in holder_of_the_lock(window, tasks))


def with_full_buffers(windows: Sequence[Window], root: int) -> Gain:
    """Return the gain if the exchanges with nearly empty buffers sent full ones.

    A buffer costs about the same time whether it is full or nearly empty. Both ends therefore need only a part of the
    time for such an exchange: the fraction to which its buffers are filled now. Waits for other tasks of the process
    shrink with the work of these tasks, see `_with_waits`. Waits for a processor shrink with the job's part of the
    machine's work.

    This is only the least gain if it is not known how long the tasks wait for the interpreter lock: fewer buffers also
    wake fewer threads, which compete for the lock. These waits are samples, so the mean of the last windows counts.
    """
    window = windows[-1]
    most_busy = {each.id: window.busy(root) if each.id == root else 1.0 for each in window.topology.vertices}
    lefts = [_lefts(each, most_busy) for each in windows[-_WINDOWS:]]
    gain = Gain(_MOST_OF_BUFFERS, "", at_least=True)
    for vertex in _with_more_rows(window, root):
        left = sum(each[vertex.id] for each in lefts) / len(lefts)
        most = most_busy[vertex.id]
        factor = max(1.0, most / left) if left > 0 else _MOST_OF_BUFFERS
        if factor < gain.factor:
            gain = Gain(factor, "its operators are busy" if vertex.id == root else f"{vertex.name!r} is the limit")
    return _at_the_pace(window, root, gain)


def _lefts(window: Window, most: Mapping[int, float]) -> dict[int, float]:
    """Return for each vertex for which share of the time its busiest task would be busy with full buffers.

    `most` has for each vertex for which share of the time its tasks can be busy.
    """
    saved = {(task.vertex, task.subtask): _saved(window, task) for task in window.tasks}
    return {
        vertex.id: max((_left(window, task, saved, most[vertex.id]) for task in window.of(vertex.id)), default=0.0)
        for vertex in window.topology.vertices
    }


def _saved(window: Window, task: TaskWindow) -> float:
    """Return the share of the time that a task would not spend on its exchanges if their buffers were full."""
    edges = [edge for edge in window.topology.edges if edge.partitioning != "broadcast" and edge.name in window.edges]
    incoming = _fill(window, [window.edges[edge.name] for edge in edges if edge.target == task.vertex])
    outgoing = _fill(window, [window.edges[edge.name] for edge in edges if edge.source == task.vertex])
    return task.input * (1 - incoming) + task.output * (1 - outgoing)


def _fill(window: Window, edges: Sequence[EdgeWindow]) -> float:
    """Return the largest fill of the exchanges' buffers, or 1 if those of an exchange are not nearly empty."""
    return max((1.0 if (fill := nearly_empty(window, [edge])) is None else fill for edge in edges), default=1.0)


def _left(window: Window, task: TaskWindow, saved: Mapping[tuple[int, int], float], most: float) -> float:
    """Return the share of the time in which a task would still be busy if all tasks saved the shares in `saved`."""
    others = [other for other in window.tasks if other.taskmanager == task.taskmanager and other is not task]
    worked = sum(other.busy - other.interpreter for other in others)  # as `saved`, waits for the lock included
    freed = min(1.0, sum(saved[other.vertex, other.subtask] for other in others) / worked) if worked > 0 else 0.0
    left = task.busy - saved[task.vertex, task.subtask]
    if task.busy <= 0 or left <= 0:
        return 0.0
    delay = (task.run_delay or 0.0) * left / task.busy * _share_of_machine(window, task)
    return _with_waits(left, min(left, delay + task.kept_back), 1 - freed, most)


def _with_waits(left: float, waits: float, rest: float, most: float) -> float:
    """Return the part of `left` that stays if the others whom a task awaits for `waits` keep `rest` of their work.

    The others keep `rest` for each row. If the task then takes more rows, up to `most` of the time, they work more. For
    the result x there are most / x times as many rows, and so x = left - waits + waits * rest * most / x.

    >>> _with_waits(0.75, 0.5, 0.0, 1.0), _with_waits(0.75, 0.5, 1.0, 1.0)
    (0.25, 0.75)
    """
    alone = left - waits
    return min(left, (alone + math.sqrt(alone * alone + 4 * waits * rest * most)) / 2)


def _share_of_machine(window: Window, task: TaskWindow) -> float:
    """Return the job's share of the work of the task's machine, 0 to 1. It is 0 if the machine does not provide it."""
    host = window.processes[task.taskmanager].host
    here = window.processes_on(host)
    busy = max(process.rate("machine_cpu_s") or 0.0 for process in here)
    used = sum(process.rate("cpu_s") or 0.0 for process in here)
    return min(1.0, used / busy) if busy > 0 else 0.0


def _at_the_pace(window: Window, root: int, gain: Gain) -> Gain:
    """Return the gain, or less if less is enough for the sources to keep their schedules."""
    pace = _pace(window, root)
    return pace if pace is not None and pace.factor < gain.factor else gain


def _pace(window: Window, root: int) -> Gain | None:
    """Return the gain that is enough for the sources before `root` to keep their schedules.

    Return None if one of these sources has no schedule, or if all of them have ended: more rows may come from it, or
    wait in files.

    If the lag of a source grows by g seconds per second, the source must read 1 / (1 - g) times as many rows to keep
    its schedule. The rows that sources do read may also queue before `root`. Early in a stall both happen. The
    gain is therefore the product of both factors.
    """
    topology = window.topology
    above = topology.upstream(root) | {root}
    sources = [vertex for vertex in above if not topology.producers(vertex) and window.of(vertex)]
    growths = [_lag_growth(window, vertex) for vertex in sources]
    known = [growth for growth in growths if growth is not None]
    if not known or len(known) < len(growths):
        return None
    lost = 1 / max(1e-2, 1 - max(known))
    return Gain(max(1.0, lost) * _queued(window, root), PACE)


def _lag_growth(window: Window, vertex: int) -> float | None:
    """Return the largest growth of the lag of a vertex's tasks, or None if none of them has a schedule."""
    growths = [operator.lag_growth for task in window.of(vertex) for operator in task.operators.values()]
    return max((growth for growth in growths if growth is not None), default=None)


def _queued(window: Window, vertex: int) -> float:
    """Return the rate at which sources read rows for a vertex, divided by the rate at which the vertex takes rows.

    The result is above 1 while the queues between the sources and the vertex grow.
    """
    producers = window.topology.producers(vertex)
    if not producers:
        return 1.0
    here = max(1.0, window.inflow(vertex) / max(1, window.taken(vertex)))
    return here * max(_queued(window, each) for each in producers)


def free_processors(window: Window) -> float | None:
    """Return how many idle processors the job may use on its machines, or None if a machine does not provide this."""
    free = [_free_on(window, host) for host in {process.host for process in window.processes.values()}]
    known = [each for each in free if each is not None]
    return sum(known) if len(known) == len(free) else None


def _free_on(window: Window, host: str) -> float | None:
    """Return how many idle processors of a machine the job's TaskManagers may use."""
    taskmanagers = [process for process in window.processes.values() if process.host == host]
    idle = math.inf
    for process in taskmanagers:
        busy, cores = process.rate("machine_cpu_s"), process.value("cores")
        if busy is None or cores is None:
            return None
        idle = cores - busy
    everyone = window.processes_on(host)
    return max(0.0, min(idle, _left_by_affinity(taskmanagers, everyone), _left_by_quotas(taskmanagers, everyone)))


def _left_by_affinity(taskmanagers: Sequence[ProcessWindow], everyone: Sequence[ProcessWindow]) -> float:
    """Return on how many processors TaskManagers may run, without those that the job's processes surely use of them.

    A process that may also run elsewhere uses as many processors there as it can. Return infinity if the affinity of a
    TaskManager is unknown.
    """
    known = [each.affinity for each in taskmanagers if each.affinity is not None]
    if len(known) < len(taskmanagers):
        return math.inf
    allowed = frozenset().union(*known)
    return len(allowed) - sum(_used_of(allowed, each) for each in everyone)


def _used_of(allowed: frozenset[int], process: ProcessWindow) -> float:
    """Return how many of the `allowed` processors a process uses at least."""
    if process.affinity is None:
        return _used(process)
    return max(0.0, _used(process) - len(process.affinity - allowed))


def _left_by_quotas(taskmanagers: Sequence[ProcessWindow], everyone: Sequence[ProcessWindow]) -> float:
    """Return how many processors the quotas of TaskManagers leave. Return infinity if one has no quota.

    The job's processes in a control group share its quota. Of the groups of a TaskManager, that which leaves least
    counts; and so does each group of all of them.
    """
    if not all(each.quotas for each in taskmanagers):
        return math.inf
    left: dict[int, float] = {}
    for process in everyone:
        for group, quota in process.quotas.items():
            left[group] = left.get(group, quota) - _used(process)
    tightest = {min(each.quotas, key=lambda group: left[group]) for each in taskmanagers}
    of_all = set(taskmanagers[0].quotas).intersection(*(each.quotas for each in taskmanagers))
    return min([sum(max(0.0, left[group]) for group in tightest), *(left[group] for group in of_all)])


def _used(process: ProcessWindow) -> float:
    return process.rate("cpu_s") or 0.0


def with_more_subtasks(window: Window, tasks: tuple[TaskWindow, ...], works: float | None) -> Gain:
    """Return the gain of more subtasks for the hot `tasks`.

    `works` is the share of their busy time in which their threads use a processor, or None if this is unknown. Tasks
    that mostly wait need no further processors. For other tasks, the free processors limit the gain.
    """
    gain = next_limit(window, tasks[0].vertex)
    if works is None:
        return replace(gain, if_free=True)
    return gain if works < 0.5 else _with_free_processors(window, gain)


def with_more_processes(window: Window, tasks: Sequence[TaskWindow]) -> Gain | None:
    """Return the gain if no task waited for other tasks of its process. Return None if these waits are not known."""
    root = tasks[0].vertex
    if not any(task.kept_back for task in tasks):
        return None
    gain = Gain(_MOST, "", at_least=True)
    for vertex in _with_more_rows(window, root):
        works = max((task.busy - task.kept_back for task in window.of(vertex.id)), default=0.0)
        if works * gain.factor > 1:
            gain = Gain(1 / works, "its operators are busy" if vertex.id == root else f"{vertex.name!r} is the limit")
    return _with_free_processors(window, _at_the_pace(window, root, gain))


def _with_free_processors(window: Window, gain: Gain) -> Gain:
    """Return the gain, or less if the job's machines have no free processors for it.

    If it is not known how many processors are free or used, the gain stays as it is, and says so.
    """
    free, used = free_processors(window), window.cpu
    if free is None or used is None:
        return replace(gain, if_free=True)
    by_processors = (used + free) / used if used else math.inf
    return Gain(by_processors, "all processors are in use") if by_processors < gain.factor else gain


def subtasks_for(tasks: int, gain: Gain) -> int:
    """Return how many subtasks a vertex that has `tasks` subtasks needs for the gain: at least one more."""
    return max(tasks + 1, math.ceil(round(tasks * gain.factor, 2)))
