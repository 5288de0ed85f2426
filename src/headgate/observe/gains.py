"""How many times as many rows a job would carry if one place were no limit any more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headgate.observe.metrics_window import TaskWindow, Window

#: The most that one remedy is said to gain. What comes beyond it is seen when it is applied.
_MOST: Final = 4.0


@dataclass(frozen=True, slots=True)
class Gain:
    """`factor` times as many rows, and what is then the limit; empty if that is not in sight."""

    factor: float
    limit: str


def next_limit(window: Window, root: int) -> Gain:
    """Return the gain if `root` cost nothing: until the next vertex has no time left, or until a paced source is even.

    A vertex that is busy for a share u of the time can take 1/u times as many rows. Its waits do not count as work.
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
    """Return the gain until paced sources are even, None without one.

    A source that loses g seconds in a second gets 1 / (1 - g) times as many rows when it loses none. What it does read
    may still queue on the way to the root. Early in a stall both happen, so the gain is their product.
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
    """Return how many times as many rows sources read for a vertex as it takes, because queues on the way grow."""
    producers = () if vertex < 0 else window.topology.producers(vertex)
    if not producers:
        return 1.0
    here = max(1.0, window.inflow(vertex) / max(1, window.taken(vertex)))
    return here * max(_queued(window, each) for each in producers)


def free_processors(window: Window) -> float | None:
    """Return how many processors of the job's machines are idle; None where the machine does not say."""
    hosts: dict[str, float] = {}
    for process in window.processes:
        busy, cores = process.rate("machine_cpu_s"), process.value("cores")
        if busy is None or cores is None:
            return None
        hosts[process.host] = max(0.0, cores - busy)
    return sum(hosts.values())


def with_more_subtasks(window: Window, tasks: tuple[TaskWindow, ...], works: float | None) -> Gain:
    """Return the gain of more subtasks for the hot `tasks`, whose processors work for the share `works` of their busy
    time (None if the machine does not say). What they wait for outside needs no processor."""
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
    """Return how many subtasks carry the gain."""
    return max(tasks + 1, math.ceil(round(tasks * gain.factor, 2)))
