"""Find out where a job is slow, why, and what to do: a pure function of the reports of the job's TaskManagers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from headgate.observe.bursts import burst_cause
from headgate.observe.causes import busiest, cause_of, throttle_cause
from headgate.observe.exchanges import exchange_cause, exchange_remedy
from headgate.observe.finding import Cause, Finding, Remedy
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.metrics_window import Window, window_of
from headgate.observe.peer_rows import amounts_of_rows, with_most_rows
from headgate.observe.remedies import raise_rate, remedy_for, spare_the_driver
from headgate.observe.roots import BLOCKED, Root, SlowDriver, SlowExchange, SlowTasks, ThrottledSource, roots
from headgate.observe.standing_watermarks import standing_watermarks
from headgate.observe.topology import Topology
from headgate.observe.trend import severity
from headgate.observe.windows_on_demand import WindowsOnDemand

#: The seconds of one window. In a much shorter window, shares of time would depend on chance.
WINDOW: Final = 3.0
#: The least seconds of a window, for snapshots that come late.
_SHORTEST: Final = 2.0
#: How many of the latest snapshots, a second apart, a diagnosis needs.
LATEST: Final = 30


def diagnose(topology: Topology, snapshots: Sequence[MetricsSnapshot]) -> list[Finding]:
    """Return the places that limit a job's throughput, the worst first. The list is empty if there are none.

    `snapshots` are the latest snapshots, the oldest first, about a second apart. Snapshots of earlier attempts do not
    count. Places and causes come from the last three seconds. The earlier snapshots show whether the job falls behind.
    """
    windows = windows_of(topology, snapshots)
    if not windows:
        return []
    how_bad = severity(windows)
    slow = [replace(finding, severity=how_bad) for finding in findings(windows)]
    return slow + standing_watermarks(windows)


def windows_of(topology: Topology, snapshots: Sequence[MetricsSnapshot]) -> Sequence[Window]:
    """Return the windows of the last attempt, the latest last. Windows do not overlap."""
    return WindowsOnDemand(topology, tuple(_backwards(snapshots))[::-1])


def latest_window(topology: Topology, snapshots: Sequence[MetricsSnapshot]) -> Window | None:
    """Return the window that ends with the latest snapshot, or None before the first window is complete."""
    latest = next(_backwards(snapshots), None)
    return None if latest is None else window_of(topology, *latest)


def while_tasks_ran(snapshots: Sequence[MetricsSnapshot]) -> Sequence[MetricsSnapshot]:
    """Return the snapshots without the last ones, in which all tasks have ended.

    The last snapshot of a finished job has its final counters, but says nothing of what its tasks spend their time on.
    """
    end = len(snapshots)
    while end > 0 and all(task["ended"] for report in snapshots[end - 1].reports for task in report["tasks"]):
        end -= 1
    return snapshots[:end]


def _backwards(snapshots: Sequence[MetricsSnapshot]) -> Iterator[tuple[MetricsSnapshot, MetricsSnapshot]]:
    """Yield the first and the last snapshot of each window of the last attempt, the latest window first."""
    end = len(snapshots) - 1
    while end > 0:
        begin = _before(snapshots, end)
        if begin is None:
            return
        yield snapshots[begin], snapshots[end]
        end = begin


def _before(snapshots: Sequence[MetricsSnapshot], end: int) -> int | None:
    """A window ends with snapshot `end`: return the index of the snapshot with which it begins.

    The length of the window is as near to `WINDOW` as the snapshots allow: reports of a process that computes are late.
    Return None if the attempt is younger than a window.
    """
    latest = snapshots[end]
    earlier = enumerate(snapshots[:end])
    lengths = {begin: latest.at - each.at for begin, each in earlier if each.attempt == latest.attempt}
    if max(lengths.values(), default=0.0) < WINDOW - 0.3:
        return None
    enough = [begin for begin, length in lengths.items() if length >= _SHORTEST]
    return min(enough, key=lambda begin: abs(lengths[begin] - WINDOW))


def findings(windows: Sequence[Window]) -> list[Finding]:
    """Return the places that limit a job's throughput in the last of these windows."""
    return [_finding(windows, root) for root in roots(windows[-1])]


def _finding(windows: Sequence[Window], root: Root) -> Finding:
    window = windows[-1]
    match root:
        case SlowTasks():
            blamed, cause = _blamed(windows, root)
            return _of_tasks(window, blamed, cause, remedy_for(windows, blamed, cause))
        case SlowDriver():
            cause = Cause(
                name="slow_driver",
                text="the driver takes its rows slowly",
                evidence={"waits": max(task.hard for task in root.tasks)},
            )
            return _of_tasks(window, root, cause, spare_the_driver(window, root, cause))
        case SlowExchange():
            cause = exchange_cause(window, root)
            return _of_exchange(window, root, cause, exchange_remedy(window, root, cause))
        case ThrottledSource():
            return _of_throttle(window, root, throttle_cause(window, root), raise_rate(window, root))


def _blamed(windows: Sequence[Window], root: SlowTasks) -> tuple[SlowTasks, Cause]:
    """Return the tasks to blame, and the cause. Of subtasks with too many rows, only those with most are to blame."""
    cause = burst_cause(windows, root) or cause_of(windows, root)
    if cause.name == "data_skew":
        root = with_most_rows(root, amounts_of_rows(windows, root))
    return root, cause


def _of_tasks(window: Window, root: SlowTasks | SlowDriver, cause: Cause, remedy: Remedy) -> Finding:
    topology = window.topology
    takes_for_driver = isinstance(root, SlowDriver)  # its sink waits, and is not busy
    operator = (
        topology.vertices[root.vertex].operators[-1] if takes_for_driver else topology.operator(busiest(root.tasks))
    )
    subtasks = tuple(task.subtask for task in root.tasks)
    is_all = isinstance(root, SlowDriver) or root.all
    place = repr(operator.name) if is_all else repr(f"{operator.name}[{', '.join(map(str, subtasks))}]")
    return Finding(
        place=place,
        vertex=root.vertex,
        operator=operator.name,
        subtasks=subtasks,
        waits=_waiting(window, root.vertex),
        cause=cause,
        remedy=remedy,
        is_source=not topology.producers(root.vertex),
    )


def _of_throttle(window: Window, root: ThrottledSource, cause: Cause, remedy: Remedy) -> Finding:
    operator = window.topology.vertices[root.vertex].operators[0]
    return Finding(
        place=repr(operator.name),
        vertex=root.vertex,
        operator=operator.name,
        subtasks=tuple(task.subtask for task in root.tasks),
        waits=_waiting(window, root.vertex),
        cause=cause,
        remedy=remedy,
        is_source=True,
    )


def _of_exchange(window: Window, root: SlowExchange, cause: Cause, remedy: Remedy) -> Finding:
    return Finding(
        place=f"the exchange {root.edge.name!r}",
        vertex=None,
        operator=None,
        subtasks=tuple(task.subtask for task in root.tasks),
        waits=(window.topology.vertices[root.edge.source].operators[-1].name,),
        cause=cause,
        remedy=remedy,
    )


def _waiting(window: Window, vertex: int) -> tuple[str, ...]:
    """Return the names of the direct producers that wait. For a slow source, return the names of its consumers."""
    topology = window.topology
    producers = [each for each in topology.producers(vertex) if window.blocked(each) > BLOCKED]
    if producers or topology.producers(vertex):
        return tuple(topology.vertices[each].operators[-1].name for each in producers)
    return tuple(topology.vertices[each].operators[0].name for each in topology.consumers(vertex))
