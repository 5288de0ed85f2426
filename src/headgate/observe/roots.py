"""Find the roots: the vertices, subtasks and exchanges that limit a job themselves, and do not only wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.observe.interpreter_lock import holder_of_the_lock, off_per_batch, wait_for_the_lock
from headgate.observe.metrics_window import TaskWindow, Window, peers
from headgate.observe.topology import EdgeShape

#: A task is hot if it works for at least this share of the time. It has no time for more rows.
HOT: Final = 0.85
#: A vertex waits for its consumers if one of its tasks is blocked for more than this share of the time (level LOW).
BLOCKED: Final = 0.10
#: An exchange is a root if its producers wait for more than this share of the time. If they wait less, a remedy would
#: gain less than 1.25 times as many rows.
_HELD_UP: Final = 0.20
#: A source is a root if it is busy for the first share of the time, and its consumers are idle for the second share.
_SOURCE_BUSY: Final = 0.90
_CONSUMERS_IDLE: Final = 0.30
#: Of the exchanges of a producer, one is not a root if its buffers are less full than this share of the fullest one's.
_AS_FULL: Final = 0.50
#: A consumer that works for this share of the time explains why its producers wait. The exchange is then not a root.
_EXPLAINS: Final = 0.50
#: A vertex is overrun if one of its tasks works for the share `_ALWAYS` of the time, and if its producers send more
#: than `_INFLOW` times the rows that the vertex takes.
_ALWAYS: Final = 0.95
_INFLOW: Final = 1.15
#: The seconds of a long batch, and the batches per second of a task that surely keeps up.
_LONG_BATCH: Final = 1.0
_MANY_BATCHES: Final = 5.0
#: A task that works for this share of the time for its snapshots does little else.
_MOSTLY: Final = 0.50
#: If more than this share of a vertex's tasks are hot, the whole vertex is slow, not only some of its subtasks.
_MOST: Final = 0.70


@dataclass(frozen=True, slots=True)
class SlowTasks:
    """A root: the hot tasks of one vertex. `all` is True if these are all or most of the vertex's tasks."""

    vertex: int
    tasks: tuple[TaskWindow, ...]
    all: bool


@dataclass(frozen=True, slots=True)
class SlowDriver:
    """A root: the tasks of a sink wait within a batch for the driver, which takes the rows slowly."""

    vertex: int
    tasks: tuple[TaskWindow, ...]


@dataclass(frozen=True, slots=True)
class SlowExchange:
    """A root: the producers of an exchange wait, and no consumer is busy. The exchange itself is therefore slow."""

    edge: EdgeShape
    tasks: tuple[TaskWindow, ...]


@dataclass(frozen=True, slots=True)
class ThrottledSource:
    """A root: the tasks of a source wait for a static throttle, which lets through fewer rows than there are."""

    vertex: int
    tasks: tuple[TaskWindow, ...]

    @property
    def share(self) -> float:
        """The largest share of a task's time in which it waits for the throttle."""
        return max(task.throttled for task in self.tasks)


Root = SlowTasks | SlowDriver | SlowExchange | ThrottledSource


def roots(window: Window) -> list[Root]:
    """Return all roots. The root that makes other tasks wait longest comes first, and of several, the busiest.

    Tasks that may only wait for the interpreter lock come last, behind the tasks that hold it.
    """
    found: list[tuple[float, float, Root]] = []
    for vertex in window.topology.vertices:
        root = _slow_driver(window, vertex.id) or _slow_tasks(window, vertex.id)
        if root is not None:
            found.append((_held_up(window, vertex.id), _worked(root), root))
        throttled = _throttled_source(window, vertex.id)
        if throttled is not None:
            found.append((throttled.share, 0.0, throttled))
    for edge in window.topology.edges:
        exchange = _slow_exchange(window, edge)
        if exchange is not None:
            found.append((max(task.blocked for task in exchange.tasks), _usage(window, edge) or 0.0, exchange))
    found.sort(key=lambda each: (-each[0], -each[1]))
    return _behind_the_holders(window, [root for _, _, root in found])


def _worked(root: SlowTasks | SlowDriver) -> float:
    """Return the largest share of the time that a task of a root worked, or waited for the driver."""
    return max(task.busy + (task.hard if isinstance(root, SlowDriver) else 0.0) for task in root.tasks)


def _behind_the_holders(window: Window, found: list[Root]) -> list[Root]:
    """Move the roots that wait for the interpreter lock to the end, sorted by their wait per batch, the longest first.

    The tasks that hold the lock become a root if they are not yet a root.
    """
    waiting = [each for each in found if isinstance(each, SlowTasks) and wait_for_the_lock(window, each.tasks)]
    waiting.sort(key=lambda each: -max(off_per_batch(window, task) for task in each.tasks))
    first = [each for each in found if each not in waiting]
    holders = holder_of_the_lock(window, waiting[0].tasks) if waiting else ()
    if holders and holders[0].vertex not in [each.vertex for each in found if isinstance(each, SlowTasks)]:
        vertex = holders[0].vertex
        first.append(SlowTasks(vertex, holders, len(holders) > _MOST * len(window.of(vertex))))
    return first + waiting


def _slow_tasks(window: Window, vertex: int) -> SlowTasks | None:
    tasks = window.of(vertex)
    hot = tuple(task for task in tasks if task.busy >= HOT)
    if not hot or not (_is_awaited(window, vertex) or _is_slow_source(window, vertex)):
        return None
    hot = _behind(window, hot) or hot
    return SlowTasks(vertex, hot, len(hot) > _MOST * len(tasks))


def _behind(window: Window, hot: tuple[TaskWindow, ...]) -> tuple[TaskWindow, ...]:
    """Return the hot tasks that need long for a batch, if all other hot tasks keep up because they take many batches.

    Otherwise, return no tasks.
    """
    behind = tuple(task for task in hot if _needs_long(window, task))
    keep_up = [task for task in hot if task.batches_in >= _MANY_BATCHES * window.seconds]
    return behind if len(behind) + len(keep_up) == len(hot) else ()


def _is_awaited(window: Window, vertex: int) -> bool:
    """Return whether producers wait for the vertex, or soon will because they send rows faster than it takes them."""
    if any(window.blocked(producer) > BLOCKED for producer in window.topology.producers(vertex)):
        return True
    return _is_overrun(window, vertex) or _has_long_batches(window, vertex) or _has_long_snapshots(window, vertex)


def _has_long_batches(window: Window, vertex: int) -> bool:
    """Return whether a task of a vertex works all the time and needs long for a batch, while more rows come.

    A task takes all rows that wait as one batch. So a task that falls behind takes larger and larger batches, and in a
    window it may take as many rows as come.
    """
    return window.inflow(vertex) > 0 and any(_needs_long(window, task) for task in window.of(vertex))


def _has_long_snapshots(window: Window, vertex: int) -> bool:
    """Return whether a task of a vertex works all the time, mostly to take its state, while more rows come.

    Like a task with long batches, it takes all rows that wait between two snapshots.
    """
    takes = any(task.busy >= _ALWAYS and task.snapshot >= _MOSTLY for task in window.of(vertex))
    return takes and window.inflow(vertex) > 0


def _needs_long(window: Window, task: TaskWindow) -> bool:
    return task.busy >= _ALWAYS and task.batches_in * _LONG_BATCH < window.seconds


def _is_overrun(window: Window, vertex: int) -> bool:
    """Return whether a task of a vertex works all the time, and more rows come than the vertex takes."""
    return any(task.busy >= _ALWAYS for task in window.of(vertex)) and queue_grows([window], vertex)


def never_idles(window: Window, vertex: int) -> bool:
    """Return whether a task of a vertex works or waits for room all the time."""
    return any(task.busy + task.blocked >= _ALWAYS for task in window.of(vertex))


def queue_grows(windows: Sequence[Window], vertex: int) -> bool:
    """Return whether more rows come in these windows than the vertex takes."""
    come = sum(window.inflow(vertex) for window in windows)
    return come > _INFLOW * sum(window.taken(vertex) for window in windows)


def _is_slow_source(window: Window, vertex: int) -> bool:
    """Return whether the vertex is a busy source whose consumers, if it has any, wait for it.

    A vertex of a later stage counts as a source: its producers have ended, and its rows wait in files.
    A busy source that may wait for the interpreter lock also counts: its consumers may hold the lock.
    """
    topology = window.topology
    if _has_producers(window, vertex) or window.busy(vertex) < _SOURCE_BUSY:
        return False
    if wait_for_the_lock(window, window.of(vertex)):
        return True
    return all(_has_time(window, consumer) for consumer in topology.consumers(vertex) if window.of(consumer))


def _has_producers(window: Window, vertex: int) -> bool:
    """Return whether a vertex has producers that have not ended."""
    return not all(window.has_ended(producer) for producer in window.topology.producers(vertex))


def _has_time(window: Window, consumer: int) -> bool:
    """Return whether the tasks of a consumer are idle, or only work for long because they wait for the lock."""
    tasks = window.of(consumer)
    return peers([task.idle for task in tasks]) >= _CONSUMERS_IDLE or wait_for_the_lock(window, tasks)


def _slow_driver(window: Window, vertex: int) -> SlowDriver | None:
    if window.topology.consumers(vertex):
        return None
    waiting = tuple(task for task in window.of(vertex) if task.hard > 1 - HOT and task.hard + task.busy >= HOT)
    return SlowDriver(vertex, waiting) if waiting else None


def _throttled_source(window: Window, vertex: int) -> ThrottledSource | None:
    if not window.topology.vertices[vertex].operators[0].static_throttle:
        return None
    waiting = tuple(task for task in window.of(vertex) if task.throttled > BLOCKED)
    return ThrottledSource(vertex, waiting) if waiting else None


def _slow_exchange(window: Window, edge: EdgeShape) -> SlowExchange | None:
    waiting = tuple(task for task in window.of(edge.source) if task.blocked > _HELD_UP)
    if not waiting or _has_room(window, edge):
        return None
    for consumer in window.topology.consumers(edge.source):
        for task in window.of(consumer):
            if task.busy >= _EXPLAINS or task.blocked > BLOCKED:
                return None
            if task.checkpoint > BLOCKED and _gets_late_barriers(window, consumer):
                return None
    return SlowExchange(edge, waiting)


def _has_room(window: Window, edge: EdgeShape) -> bool:
    """Return whether the buffers of an exchange are much less full than those of another exchange of its producers.

    The producers then wait for room in the other exchange.
    """
    usage = _usage(window, edge)
    others = [_usage(window, each) or 0.0 for each in window.topology.edges if each.source == edge.source]
    return usage is not None and usage < _AS_FULL * max(others)


def _usage(window: Window, edge: EdgeShape) -> float | None:
    """Return the share of an exchange's output buffers in use, or None if this is unknown."""
    found = window.edges.get(edge.name)
    return None if found is None else found.usage


def _gets_late_barriers(window: Window, consumer: int) -> bool:
    """Return whether barriers may come late to a consumer because a busy task upstream has not yet sent them.

    If no task upstream is busy, barriers come late because the exchange is slow.
    """
    return any(window.busy(vertex) >= _EXPLAINS for vertex in window.topology.upstream(consumer))


def _held_up(window: Window, vertex: int) -> float:
    """Return how long a vertex makes others wait, as a share of the time.

    This is the largest blocked share of all vertices upstream. For a source, it is the largest idle share of its
    consumers.
    """
    topology = window.topology
    upstream = max((window.blocked(each) for each in topology.upstream(vertex)), default=0.0)
    idle = max((window.idle(each) for each in topology.consumers(vertex)), default=0.0)
    return upstream if _has_producers(window, vertex) else idle
