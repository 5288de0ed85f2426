"""Mechanisms that lose signals: each TaskManager or subtask loses its first "stop" or its first "go on".

Of Storm 1.0, every such signal is lost. `ReplacedJStormMaster` loses no signal: its coordinator is replaced.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headgate.quantities import size
from headgate.throttle.heron_spout import HeronSpout, HeronWorker, StartBackPressure, StopBackPressure
from headgate.throttle.jstorm_master import JStormMaster, LoadSampler
from headgate.throttle.jstorm_stages import JStormStages, JStormWorker
from headgate.throttle.mechanism import Task
from headgate.throttle.stage_signals import BackPressureStatus, JStormStop
from headgate.throttle.storm_status import StormStatus, StormWorker
from headgate.throttle.storm_zookeeper import DeleteZnode, PutZnode, StormZooKeeper, StormZooKeeperWorker, ZnodeChange
from headgate.throttle.throttle_coordinator import Order, StartRequest, StopRequest, ThrottleCoordinator
from headgate.throttle.validation import duration

#: The lost signal: one that stops sources or senders, or one that lets them go on.
Lost = Literal["stop", "start"]


class _Loss:
    """Loses the first signal for which `is_lost` holds, or `every` such signal."""

    def __init__(self, is_lost: Callable[[Any], bool], *, every: bool = False) -> None:
        self._is_lost = is_lost
        self._every = every
        self._has_lost = False

    def passes(self, signal: Any) -> bool:
        if (self._has_lost and not self._every) or not self._is_lost(signal):
            return True
        self._has_lost = True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyStormZooKeeper(StormZooKeeper):
    """A change of a TaskManager's node never reaches ZooKeeper, but the TaskManager believes that it did.

    With `version="1.0"`, every change of the lost kind is lost: the queue may cross its marks at any time, and a second
    change would hide that the first one was lost. 1.2 writes its node again and again, and loses the first change only.
    """

    lost: Lost

    def worker(self, job: str, name: str, tasks: Iterable[Task], now: float) -> StormZooKeeperWorker:
        return _LossyZooKeeperWorker(self, f"{self.folder(job)}/{name}", tasks, now)


class _LossyZooKeeperWorker(StormZooKeeperWorker):
    def __init__(self, mechanism: LossyStormZooKeeper, path: str, tasks: Iterable[Task], now: float) -> None:
        super().__init__(mechanism, path, tasks, now)
        kind = PutZnode if mechanism.lost == "stop" else DeleteZnode
        self._loss = _Loss(lambda change: isinstance(change, kind), every=mechanism.version == "1.0")

    def check(self, now: float, wall: float | None = None) -> list[ZnodeChange]:
        sent = []
        for change in super().check(now, wall):
            if self._loss.passes(change):
                sent.append(change)
            else:
                self.written(now, change)
        return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyStormStatus(StormStatus):
    """A status is lost on its way."""

    lost: Lost

    def stages(self, taskmanager: int, tasks: Iterable[Task], now: float) -> StormWorker:
        return _LossyStormWorker(self, taskmanager, tasks, now)


class _LossyStormWorker(StormWorker):
    def __init__(self, mechanism: LossyStormStatus, taskmanager: int, tasks: Iterable[Task], now: float) -> None:
        super().__init__(mechanism, taskmanager, tasks, now)
        self._loss = _Loss(lambda status: bool(status.full) == (mechanism.lost == "stop"))

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> list[BackPressureStatus]:
        return [*filter(self._loss.passes, super().added(now, task, queued, sender))]

    def check(self, now: float) -> list[BackPressureStatus]:
        return [*filter(self._loss.passes, super().check(now))]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyJStormStages(JStormStages):
    """A stop or a release is lost on its way."""

    lost: Lost

    def stages(self, taskmanager: int, tasks: Iterable[Task], now: float = 0.0) -> JStormWorker:
        return _LossyJStormWorker(self, taskmanager, tasks)


class _LossyJStormWorker(JStormWorker):
    def __init__(self, mechanism: LossyJStormStages, taskmanager: int, tasks: Iterable[Task]) -> None:
        super().__init__(mechanism, taskmanager, tasks)
        self._loss = _Loss(lambda signal: signal.stops == (mechanism.lost == "stop"))

    def added(self, now: float, task: Task, queued: int, sender: int | None) -> list[JStormStop]:
        return [*filter(self._loss.passes, super().added(now, task, queued, sender))]

    def taken(self, now: float, task: Task, queued: int) -> list[JStormStop]:
        return [*filter(self._loss.passes, super().taken(now, task, queued))]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyHeronSpout(HeronSpout):
    """An announcement is lost on its way to the other TaskManagers."""

    lost: Lost

    def worker(self, taskmanager: int) -> HeronWorker:
        return _LossyHeronWorker(self, taskmanager)


class _LossyHeronWorker(HeronWorker):
    def __init__(self, mechanism: LossyHeronSpout, taskmanager: int) -> None:
        super().__init__(taskmanager, size(mechanism.high), size(mechanism.low))
        self._loss = _Loss(lambda signal: isinstance(signal, StartBackPressure) == (mechanism.lost == "stop"))

    def sent(self, end: Task, unsent: int) -> StartBackPressure | None:
        signal = super().sent(end, unsent)
        return signal if signal is not None and self._loss.passes(signal) else None

    def drained(self, end: Task, unsent: int) -> StopBackPressure | None:
        signal = super().drained(end, unsent)
        return signal if signal is not None and self._loss.passes(signal) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyJStormMaster(JStormMaster):
    """A request is lost on its way to the coordinator."""

    lost: Lost

    def sampler(self, task: Task, now: float) -> LoadSampler:
        return _LossySampler(self, task, now)


class _LossySampler(LoadSampler):
    def __init__(self, mechanism: LossyJStormMaster, task: Task, now: float) -> None:
        super().__init__(mechanism, task, now)
        kind = StartRequest if mechanism.lost == "stop" else StopRequest
        self._loss = _Loss(lambda request: isinstance(request, kind))

    def check(self, now: float, queued: int, worked_ms: float) -> StartRequest | StopRequest | None:
        request = super().check(now, queued, worked_ms)
        return request if request is not None and self._loss.passes(request) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedJStormMaster(JStormMaster):
    """When the first relieved subtask asks to stop the throttling, a new coordinator takes over.

    With `keeps_state` the new one reads what the old one stored, as JStorm's does. Otherwise it knows of no sleeping
    source.
    """

    keeps_state: bool

    def coordinator(
        self,
        inputs: Mapping[int, Sequence[int]],
        parallelism: Mapping[int, int],
        never_asleep: Collection[int] = (),
    ) -> ThrottleCoordinator:
        period = duration("check_interval", self.check_interval) * self.samples
        replaced = _ReplacedCoordinator(inputs, parallelism, period, self.trigger_ratio, never_asleep=never_asleep)
        replaced.keeps_state = self.keeps_state
        return replaced


class _ReplacedCoordinator(ThrottleCoordinator):
    keeps_state = False
    _is_new = False

    def on_signal(self, now: float, request: StartRequest | StopRequest) -> list[Order]:
        if isinstance(request, StopRequest) and not self._is_new:
            self._is_new = True
            self._sources = copy.deepcopy(self._sources) if self.keeps_state else {}
        return super().on_signal(now, request)
