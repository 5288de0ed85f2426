"""One run of a mechanism in the lab: what its job showed while it ran, and at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import numpy as np

import headgate as hg
from headgate.errors import JobCancelled, NetworkMemoryFull
from headgate.lab.flows import Flows, by_target
from headgate.lab.mechanisms.contestants import zookeeper
from headgate.lab.mechanisms.processor_times import ProcessorTimes
from headgate.lab.places import A2, B4, TASKMANAGERS, Place
from headgate.lab.probe import Probe, Seen
from headgate.simulation.simulated_environment import SimulatedEnvironment
from headgate.simulation.simulated_job import Watch

#: Seconds between two looks at a job, unless an experiment says something else.
LOOK: Final = 0.05
#: The share of a look in which a source must have waited to count as stopped.
_STOPS: Final = 0.5
#: Seconds that a job may need to start and to end, on any machine.
_MARGIN: Final = 60.0
#: Set when the user interrupts the lab (Ctrl-C): each run then cancels its job and ends at its next look.
interrupted: Final = threading.Event()


@dataclass(slots=True)
class Look:
    """The counters of a job at one time, in seconds since its first row."""

    at: float
    rows_in: int
    rows_out: int
    #: For how long the source of the slow stream has waited: for its throttle, or for room in its output.
    waited: float
    #: When the TaskManagers of the sources and of the sinks counted these rows, in seconds on one clock. None: at `at`.
    counted: tuple[float, float] | None = None


@dataclass(slots=True, kw_only=True)
class MechanismRun:
    """What one run showed. `seen` has the records of the sink's subtasks; it is empty if the job failed."""

    looks: list[Look] = field(default_factory=list)
    seen: Mapping[int, Seen] = field(default_factory=dict)
    rows_in: int = 0
    #: The rows that the sources sent, also again.
    rows_sent: int = 0
    rows_out: int = 0
    rows_dropped: int = 0
    #: How long the job ran, in seconds.
    seconds: float = 0.0
    #: Signals of the mechanism: see the metric `throttle_signals`.
    signals: int = 0
    #: The processor time of the driver, without the looks, and of ZooKeeper, in seconds. None if it was not measured.
    driver_s: float | None = None
    zookeeper_s: float | None = None
    #: The text of the error if memory was full. That is a result, not a failure of the experiment.
    out_of_memory: str = ""
    #: Whether the job still ran long after the end of its flows, so that it was cancelled.
    is_stuck: bool = False

    def most_in_flight(self, begin: float, end: float) -> int:
        """Return the most rows that were read, but neither written nor dropped, between two times."""
        return round(max((rows for at, rows in self.in_flight() if begin <= at <= end), default=0))

    def in_flight(self) -> list[tuple[float, float]]:
        """Return the rows that were read, but neither written nor dropped, by the time of the look.

        TaskManagers report at different times, and a report is up to half a second old. So the rows of the newer report
        are those between it and the one before, at the time of the older report. Nothing is known of the time before
        the first report of either.
        """
        if not self.looks:
            return []
        counted = [look.counted or (look.at, look.at) for look in self.looks]
        times = [min(each) for each in counted]
        read = np.interp(times, [each[0] for each in counted], [look.rows_in for look in self.looks])
        written = np.interp(times, [each[1] for each in counted], [look.rows_out for look in self.looks])
        rows = zip((look.at for look in self.looks), times, (read - written).tolist(), strict=True)
        return [(at, difference) for at, time, difference in rows if time >= max(counted[0])]

    def stopped_at(self, begin: float) -> float | None:
        """Return when, from `begin` on, the source first waited more than half of the time. None: it never did."""
        return next((max(begin, first) for first, _ in self._waits(begin)), None)

    def released_at(self, begin: float) -> float | None:
        """Return the time, from `begin` on, after which the source never again waited more than half of the time.

        None: it waited until the end.
        """
        last = max((end for _, end in self._waits(begin)), default=begin)
        return None if self.looks and last >= self._reports()[-1].at else last

    def stops(self, begin: float, end: float) -> int:
        """Return how often the source began to wait more than half of the time, between two times."""
        waits = [wait for wait in self._waits(begin) if wait[0] < end]
        return len(waits) - sum(wait[0] == before[1] for before, wait in pairwise(waits))

    def _waits(self, begin: float) -> Iterator[tuple[float, float]]:
        """Yield the times between two reports that end after `begin`, and in which the source waited more than half of
        the time."""
        for before, look in pairwise(self._reports()):
            if look.at > begin and look.waited - before.waited > _STOPS * (look.at - before.at):
                yield before.at, look.at

    def _reports(self) -> list[Look]:
        """Return the looks that saw a new report of the source's process. A process reports less often than the lab
        looks, and a report has the wait since the one before."""
        fresh = self.looks[:1]
        for look in self.looks:
            if (look.rows_in, look.waited) != (fresh[-1].rows_in, fresh[-1].waited):
                fresh.append(look)
        return fresh

    @property
    def full_at(self) -> float | None:
        """When memory was full, in seconds since the first row; None: it never was."""
        return self.looks[-1].at if self.out_of_memory and self.looks else None

    @property
    def doubled(self) -> int:
        return max(0, self.rows_out - self.rows_in)

    @property
    def lost(self) -> int:
        return max(0, self.rows_in - self.rows_out)


def outcome(rounds: Sequence[MechanismRun]) -> dict[str, tuple[str, Sequence[float | None]]]:
    """Return what became of the rows and of the memory, and the mechanism's `overhead`, in the same form."""
    return {
        "rows lost": ("rows", [float(each.lost) for each in rounds]),
        "rows doubled": ("rows", [float(each.doubled) for each in rounds]),
        "until memory is full": ("s", [each.full_at for each in rounds]),
        **overhead(rounds),
    }


def overhead(rounds: Sequence[MechanismRun]) -> dict[str, tuple[str, Sequence[float | None]]]:
    """Return what the mechanism itself cost, by name: the unit, and the value of each round.

    Rows that were written twice count once as written.
    """
    return {
        "signals": ("per second", [_share(each.signals, each.seconds) for each in rounds]),
        "rows sent for a written row": (
            "",
            [_share(each.rows_sent, min(each.rows_in, each.rows_out)) for each in rounds],
        ),
        "processor time of the driver": ("s per s", [_share(each.driver_s, each.seconds) for each in rounds]),
        "processor time of ZooKeeper": ("s per s", [_share(each.zookeeper_s, each.seconds) for each in rounds]),
    }


def _share(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole else None


def observe(
    place: Place, options: Mapping[str, Any], flows: Flows, probe: Probe, source: int = A2, *, look: float = LOOK
) -> MechanismRun:
    """Run flows into the sink `probe`, and read the job's metrics every `look` seconds until it ends.

    `source` is the subtask whose waits are noted. A job that still runs long after the end of its flows is cancelled,
    and its run is stuck. Raises the error of a job that fails, and HeadgateError if the run is void.
    """
    environment = _pipeline(place, options, flows, probe)
    run = MechanismRun()
    server = zookeeper() if isinstance(options.get("throttle"), hg.throttle.StormZooKeeper) else None
    times = ProcessorTimes(server.processor_seconds if server else None)
    try:
        result = _execute(environment, _Looker(run, source).look, look, _longest(flows.seconds))
    except NetworkMemoryFull as error:
        run.out_of_memory = error.message
        if run.looks:
            _count_last_look(run)
        return run
    except _Overdue:
        _check_source(run)
        run.is_stuck = True
        _count_last_look(run)
        return run
    check_readers(options.get("flow_control"), result.metrics)
    _check_source(run)
    if not isinstance(environment, SimulatedEnvironment):
        run.driver_s = times.driver()
    run.zookeeper_s = times.zookeeper()
    run.seconds, run.signals = run.looks[-1].at, result.metrics["throttle_signals"]
    run.seen = probe.seen
    run.rows_in, run.rows_out = result.rows_in, result.rows_out
    run.rows_sent = sum(each["rows_out"] for each in result.metrics["edges"].values())
    run.rows_dropped = sum(each.get("rows_dropped", 0) for each in result.metrics["tasks"].values())
    return run


def _longest(planned: float) -> float:
    """Return after how many seconds a job whose sources end after `planned` seconds is stuck.

    A slow sink may need twice the time of the sources for the rows that wait when these end.
    """
    return 3 * planned + _MARGIN


def _count_last_look(run: MechanismRun) -> None:
    """Take the counters of the last look for those of a job that has no result."""
    run.seconds, run.rows_in, run.rows_out = run.looks[-1].at, run.looks[-1].rows_in, run.looks[-1].rows_out


def check_readers(flow_control: str | None, metrics: Mapping[str, Any]) -> None:
    """Raise HeadgateError if an input stopped reading that must never stop: the run is void.

    `flow_control` is what the experiment asked for, None for the default. `metrics` are those of the job at its end.
    """
    stops = sum(each.get("reader_stops", 0) for each in metrics["tasks"].values())
    if flow_control == "unbounded" and stops:
        raise hg.HeadgateError(f"the run is void: inputs stopped reading {stops} times")


def _check_source(run: MechanismRun) -> None:
    """Raise HeadgateError if the source read nothing: the run is void."""
    if not run.looks:
        raise hg.HeadgateError("the run is void: its source read no row in time; the machine may have been too busy")


def observe_part(
    place: Place,
    options: Mapping[str, Any],
    flows: Flows,
    probe: Probe,
    *,
    seconds: float,
    events: Mapping[float, Callable[[], None]] = MappingProxyType({}),
    extend: Callable[[hg.StreamEnvironment], None] | None = None,
    zookeeper_s: Callable[[], float] | None = None,
) -> MechanismRun:
    """Run flows like `observe`, but cancel the job `seconds` after its first row, because the job may wait for ever.

    `events` are functions to call, by the seconds after the first row. `extend` adds streams to the job. `zookeeper_s`
    returns the processor time that ZooKeeper has used so far; the run has what it uses from then on. The result has no
    `seen`. Raises the error of a job that fails, and HeadgateError if the run is void.
    """
    run, due = MechanismRun(), dict(events)
    looker = _Looker(run, A2)
    environment = _pipeline(place, options, flows, probe)
    if extend is not None:
        extend(environment)
    times = ProcessorTimes(zookeeper_s)
    deadline = time.monotonic() + _longest(seconds)
    job = environment.execute_async("mechanism")
    try:
        while job.status() in ("CREATED", "RUNNING") and not (run.looks and run.looks[-1].at >= seconds):
            if not run.looks and time.monotonic() > deadline:
                break
            looker.look(time.monotonic(), job.metrics())
            for at in [at for at in due if run.looks and run.looks[-1].at >= at]:
                due.pop(at)()
            time.sleep(LOOK)
        if job.status() == "FAILED":
            _fail(job, run)
        check_readers(options.get("flow_control"), job.metrics())
        run.driver_s, run.zookeeper_s = times.driver(), times.zookeeper()
    finally:
        job.cancel()
    _check_source(run)
    _count_last_look(run)
    return run


def counted(job: hg.JobHandle, times: ProcessorTimes, seconds: float) -> MechanismRun:
    """Return what the mechanism of a job cost so far, for `overhead`. An experiment that runs its job itself uses this.

    `times` began before the job, which has run for `seconds`. The run has no looks and no rows: some rows are still
    under way.
    """
    signals = job.metrics()["throttle_signals"]
    return MechanismRun(seconds=seconds, signals=signals, driver_s=times.driver(), zookeeper_s=times.zookeeper())


def _fail(job: hg.JobHandle, run: MechanismRun) -> None:
    """Raise the error of a job. If memory was full, note that."""
    try:
        job.wait()
    except NetworkMemoryFull as error:
        run.out_of_memory = error.message


def _pipeline(place: Place, options: Mapping[str, Any], flows: Flows, probe: Probe) -> hg.StreamEnvironment:
    environment = place(dict(options))
    environment.from_source(flows).name("flows").partition_by(by_target).sink_to(probe)
    return environment


class _Looker:
    """Notes the counters of a job in a run, from its first row on. `source` is the subtask whose waits are noted."""

    def __init__(self, run: MechanismRun, source: int) -> None:
        self._run = run
        self._task = f"flows[{source}]"
        self._began: float | None = None

    def look(self, now: float, metrics: Mapping[str, Any]) -> None:
        """Note the counters. Raises JobCancelled after an interrupt."""
        if interrupted.is_set():
            raise JobCancelled("the lab was interrupted")
        clocks = metrics["clock_s"]
        if self._began is None and (not metrics["rows_in"] or len(clocks) < TASKMANAGERS):
            return
        self._began = now if self._began is None else self._began
        task = metrics["tasks"].get(self._task, {})
        waited = task.get("throttle_wait_s", 0.0) + task.get("soft_backpressured_s", 0.0)
        dropped = sum(each.get("rows_dropped", 0) for each in metrics["tasks"].values())
        self._run.signals = metrics["throttle_signals"]
        self._run.rows_sent = sum(each["rows_out"] for each in metrics["edges"].values())
        self._run.looks.append(
            Look(
                now - self._began,
                metrics["rows_in"],
                metrics["rows_out"] + dropped,
                waited,
                (clocks[A2 % TASKMANAGERS], clocks[B4 % TASKMANAGERS]),
            )
        )


class _Overdue(Exception):
    """A job still runs after its longest time."""


def _execute(
    environment: hg.StreamEnvironment,
    look: Callable[[float, Mapping[str, Any]], None],
    interval: float,
    longest: float,
) -> hg.JobResult:
    """Run a job with a look every `interval` seconds. Raises _Overdue if it runs for more than `longest` seconds."""
    deadline = longest + (0.0 if isinstance(environment, SimulatedEnvironment) else time.monotonic())

    def look_in_time(now: float, metrics: Mapping[str, Any]) -> None:
        look(now, metrics)
        if now > deadline:
            raise _Overdue

    if isinstance(environment, SimulatedEnvironment):
        environment.watch = Watch(interval=interval, look=look_in_time)
        return environment.execute("mechanism")
    job = environment.execute_async("mechanism")
    try:
        while job.status() in ("CREATED", "RUNNING"):
            look_in_time(time.monotonic(), job.metrics())
            time.sleep(interval)
        return job.wait()
    finally:
        job.cancel()
