"""ThrottleCoordinator: from requests of congested subtasks to orders for the sources above them, as in JStorm 2.1."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias

from headgate.throttle.mechanism import Scope, Task, ThrottleSignal

#: A request for so many more milliseconds than the last request of every operator is forwarded at once.
_MUCH_LONGER: Final = 5


@dataclass(frozen=True, slots=True)
class StartRequest(ThrottleSignal):
    """A congested subtask asks that the sources above it sleep. It worked on its last message for `flow_ms` whole
    milliseconds."""

    scope: ClassVar[Scope] = Scope.DRIVER
    task: Task
    flow_ms: int


@dataclass(frozen=True, slots=True)
class StopRequest(ThrottleSignal):
    """A subtask is relieved; or a subtask of a source has stopped sleeping."""

    scope: ClassVar[Scope] = Scope.DRIVER
    task: Task


@dataclass(frozen=True, slots=True)
class SleepLonger(ThrottleSignal):
    """Subtasks of sources must sleep longer after each message."""

    scope: ClassVar[Scope] = Scope.TASKS
    tasks: tuple[Task, ...]
    flow_ms: int


@dataclass(frozen=True, slots=True)
class SleepShorter(ThrottleSignal):
    """Subtasks of sources may sleep less. For a subtask of another operator: no source above it sleeps."""

    scope: ClassVar[Scope] = Scope.TASKS
    tasks: tuple[Task, ...]


Order: TypeAlias = SleepLonger | SleepShorter


@dataclass(slots=True)
class _Requests:
    """What the coordinator knows of the requests of one operator about one source."""

    congested: set[Task] = field(default_factory=set)
    is_start: bool | None = None
    flow_ms: int = -1
    forwarded_at: float | None = None


@dataclass(slots=True)
class _Source:
    """A source that may sleep: its sleeping subtasks, and the requests of each operator below it."""

    sleeping: set[Task] = field(default_factory=set)
    requests: dict[int, _Requests] = field(default_factory=dict)

    @property
    def newest(self) -> _Requests | None:
        """The requests of the operator whose request was forwarded last."""
        forwarded = [each for each in self.requests.values() if each.forwarded_at is not None]
        return max(forwarded, key=lambda each: each.forwarded_at or 0.0, default=None)

    @property
    def longest_flow_ms(self) -> int:
        return max([0, *(each.flow_ms for each in self.requests.values())])


class ThrottleCoordinator:
    """Decides which sources sleep. `period`, in seconds, is the time between two requests of a subtask.

    It forwards a start to all subtasks of each source above the operator in four cases: no request about this source
    was forwarded yet; the last forwarded one is older than `period`; it was a stop; or the new one asks for over 5 ms
    more than the last request of every operator. In addition, a share of `trigger_ratio` of the operator's subtasks
    must be congested. A stop is forwarded when the last forwarded request is older than `period`. The sources
    `never_asleep` get no orders.

    >>> coordinator = ThrottleCoordinator({0: [], 1: [0]}, {0: 2, 1: 1}, period=2.0, trigger_ratio=0.1)
    >>> coordinator.on_signal(0.0, StartRequest((1, 0), flow_ms=3))
    [SleepLonger(tasks=((0, 0), (0, 1)), flow_ms=3)]
    """

    def __init__(
        self,
        inputs: Mapping[int, Sequence[int]],
        parallelism: Mapping[int, int],
        period: float,
        trigger_ratio: float,
        *,
        never_asleep: Collection[int] = (),
    ) -> None:
        self._inputs = inputs
        self._parallelism = parallelism
        self._period = period
        self._trigger_ratio = trigger_ratio
        self._never_asleep = never_asleep
        self._sources: dict[int, _Source] = {}

    @property
    def sleeping(self) -> frozenset[Task]:
        """The subtasks of sources that sleep, as far as the coordinator knows."""
        return frozenset(task for source in self._sources.values() for task in source.sleeping)

    def on_signal(self, now: float, request: StartRequest | StopRequest) -> list[Order]:
        """Return the orders that follow from a request."""
        if isinstance(request, StartRequest):
            return self._start(now, request)
        if not self._inputs[request.task[0]]:
            return self._source_stopped(request.task)
        return self._stop(now, request.task)

    # --- a congested subtask

    def _start(self, now: float, request: StartRequest) -> list[Order]:
        told: set[Task] = set()
        vertex = request.task[0]
        for name in self._above(vertex):
            source = self._sources.setdefault(name, _Source())
            requests = source.requests.setdefault(vertex, _Requests())
            requests.congested.add(request.task)
            forwards = self._forwards(now, source, request.flow_ms)
            requests.flow_ms = request.flow_ms
            requests.is_start = True
            if not forwards:
                continue
            requests.forwarded_at = now
            if len(requests.congested) / self._parallelism[vertex] >= self._trigger_ratio:
                source.sleeping.update(self._subtasks(name))
                told.update(self._subtasks(name))
        return [SleepLonger(tuple(sorted(told)), request.flow_ms)] if told else []

    def _forwards(self, now: float, source: _Source, flow_ms: int) -> bool:
        newest = source.newest
        if newest is None or self._is_old(now, newest) or newest.is_start is False:
            return True
        return flow_ms - source.longest_flow_ms > _MUCH_LONGER

    def _is_old(self, now: float, requests: _Requests) -> bool:
        return requests.forwarded_at is not None and now - requests.forwarded_at > self._period

    # --- a relieved subtask

    def _stop(self, now: float, task: Task) -> list[Order]:
        told: set[Task] = set()
        sources = self._above(task[0])
        for name in sources:
            source = self._sources.get(name)
            if source is None:
                continue
            requests = source.requests.get(task[0])
            if requests is not None:
                requests.congested.discard(task)
            if source.newest is None or not self._is_old(now, source.newest):
                continue
            if requests is None:
                return []  # JStorm fails here with a null pointer, so nobody gets an order
            requests.forwarded_at = now
            requests.is_start = False
            told.update(self._subtasks(name))
        if not self._any_sleeps(sources):
            told.add(task)
        return [SleepShorter(tuple(sorted(told)))] if told else []

    # --- a subtask of a source whose sleep is over

    def _source_stopped(self, task: Task) -> list[Order]:
        source = self._sources.get(task[0])
        if source is None:
            return []
        source.sleeping.discard(task)
        if source.sleeping:
            return []
        del self._sources[task[0]]
        relieved = [vertex for vertex in source.requests if not self._any_sleeps(self._above(vertex))]
        return [SleepShorter(tuple(self._subtasks(vertex))) for vertex in relieved]

    # --- the graph of the job

    def _any_sleeps(self, sources: Sequence[int]) -> bool:
        return any(name in self._sources and self._sources[name].sleeping for name in sources)

    def _subtasks(self, vertex: int) -> list[Task]:
        return [(vertex, number) for number in range(self._parallelism[vertex])]

    def _above(self, vertex: int) -> list[int]:
        """Return the sources that may sleep, and from which rows reach a vertex. The job may have circles."""
        reached = self._reached(vertex)
        return sorted(each for each in reached if not self._inputs[each] and each not in self._never_asleep)

    def _reached(self, vertex: int) -> Iterator[int]:
        seen: set[int] = set()
        open_ends = list(self._inputs[vertex])
        while open_ends:
            each = open_ends.pop()
            if each not in seen:
                seen.add(each)
                open_ends.extend(self._inputs[each])
                yield each
