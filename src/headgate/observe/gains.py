"""Estimate how many times as many rows a job would carry if one place no longer limited the job."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.observe.metrics_window import TaskWindow, Window

#: The largest gain that is reported for one remedy.
_MOST: Final = 4.0


@dataclass(frozen=True, slots=True)
class Gain:
    """A gain: `factor` times as many rows. `limit` says what would then limit the job, or is empty if unknown."""

    factor: float
    limit: str


def next_limit(window: Window, root: int) -> Gain:
    """Return the gain if the vertex `root` took no time. -1 stands for no vertex.

    Another vertex may limit the gain. A vertex that is busy for a share u of the time can take 1/u times as many rows.
    Sources with a schedule also limit the gain: they have no more rows than their schedule provides.
    """
    gain = Gain(_MOST, "")
    for vertex in window.topology.vertices:
        busy = window.busy(vertex.id)
        if vertex.id == root or busy <= 0:
            continue
        factor = max(1.0, 1 / busy)
        if factor < gain.factor:
            gain = Gain(factor, f"{vertex.name!r} is the limit")
    pace = _pace(window, root)
    return pace if pace is not None and pace.factor < gain.factor else gain


def _pace(window: Window, root: int) -> Gain | None:
    """Return the gain with which the sources keep their schedules, or None if no source has a schedule.

    If the lag of a source grows by g seconds per second, the source must read 1 / (1 - g) times as many rows to keep
    its schedule. Rows that sources do read may still queue before `root`. Early in a stall both happen. The gain is
    therefore the product of both factors.
    """
    growths = [
        operator.lag_growth
        for task in window.tasks
        for operator in task.operators.values()
        if operator.lag_growth is not None
    ]
    if not growths:
        return None
    lost = 1 / max(1e-2, 1 - max(growths))
    return Gain(max(1.0, lost) * _queued(window, root), "the sources keep their pace")


def _queued(window: Window, vertex: int) -> float:
    """Return the rate at which sources read rows for a vertex, divided by the rate at which the vertex takes rows.

    The result is above 1 while the queues between the sources and the vertex grow.
    """
    producers = () if vertex < 0 else window.topology.producers(vertex)
    if not producers:
        return 1.0
    here = max(1.0, window.inflow(vertex) / max(1, window.taken(vertex)))
    return here * max(_queued(window, each) for each in producers)


def free_processors(window: Window) -> float | None:
    """Return how many processors of the job's machines are idle, or None if a machine does not provide this."""
    hosts: dict[str, float] = {}
    for process in window.processes.values():
        busy, cores = process.rate("machine_cpu_s"), process.value("cores")
        if busy is None or cores is None:
            return None
        hosts[process.host] = max(0.0, cores - busy)
    return sum(hosts.values())


def with_more_subtasks(window: Window, tasks: tuple[TaskWindow, ...], works: float | None) -> Gain:
    """Return the gain of more subtasks for the hot `tasks`.

    `works` is the share of their busy time in which their threads use a processor, or None if this is unknown. Tasks
    that mostly wait need no further processors. For other tasks, the free processors limit the gain.
    """
    gain = next_limit(window, tasks[0].vertex)
    free = free_processors(window)
    used = window.cpu
    if free is None or not used or works is None or works < 0.5:
        return gain
    by_processors = (used + free) / used
    if by_processors < gain.factor:
        return Gain(by_processors, "all processors are in use")
    return gain


def subtasks_for(tasks: int, gain: Gain) -> int:
    """Return how many subtasks a vertex with `tasks` subtasks needs for the gain."""
    return max(tasks + 1, math.ceil(round(tasks * gain.factor, 2)))
