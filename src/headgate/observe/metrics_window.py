"""Compare two snapshots of a job: shares of time and numbers of rows, by task and by operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from headgate.observe.channel_window import LinkWindow, link_windows
from headgate.observe.edge_window import EdgeWindow, edge_windows
from headgate.observe.metrics_snapshot import Counters, MetricsSnapshot
from headgate.observe.reported_channels import ReportedChannels
from headgate.observe.topology import EdgeShape, Topology
from headgate.records.elements import MAX_TIME, MIN_TIME

#: The times of a task that add up to its age. At any time exactly one of them grows.
_TIMES: Final = (
    "busy_s", "idle_s", "soft_backpressured_s", "hard_backpressured_s", "checkpoint_wait_s", "throttle_wait_s",
    "closed_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorWindow:
    """One operator in one subtask, between two snapshots.

    `busy` is a share of the window, and `seconds` is the window's length. The numbers of rows and batches count only
    this window. `watermark` is in microseconds since the epoch.
    """

    id: int
    busy: float
    rows_in: int
    rows_out: int
    batches_in: int
    seconds: float
    #: The lag of a source with a schedule: the seconds for which its next rows have been due, and the growth of the lag
    #: per second. None for sources without a schedule, and for other operators.
    lag_s: float | None = None
    lag_growth: float | None = None
    #: The number of messages that wait in the input of a source, by split, and its growth per second. None if unknown.
    unread: Mapping[str, int] | None = None
    unread_growth: Mapping[str, float] | None = None
    watermark: int | None = None
    #: By how many seconds of event time the watermark grows per second. None without a watermark.
    watermark_growth: float | None = None
    #: The age of the last latency marker when it came, in seconds, and its growth per second. None without markers.
    latency_s: float | None = None
    latency_growth: float | None = None
    #: Whether a source is idle now. Consumers then ignore its watermark.
    is_idle: bool = False
    late_rows: int = 0
    #: The share of the window in which the operator waited for a user's lookup function.
    lookup_wait: float = 0.0
    #: The name of the split that a source reads now. If it reads several at the same time: the names of the splits that
    #: hold back its watermark. Recordings do not contain names of splits.
    split: str | None = None
    #: Whether this split has had rows. None if unknown; a watermark above MIN_TIME then shows that the source had rows.
    split_has_rows: bool | None = None
    #: For how many seconds one of these splits has had no rows. None for a source that reads one split after the other.
    split_silent_s: float | None = None

    @property
    def true_rate(self) -> float | None:
        """The rows that the operator takes per second of its own work, or None if it took no rows."""
        worked = self.busy * self.seconds
        return self.rows_in / worked if worked > 0 and self.rows_in else None

    @property
    def seconds_per_batch(self) -> float | None:
        return self.busy * self.seconds / self.batches_in if self.batches_in else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWindow:
    """One subtask between two snapshots. All times are shares of the window, 0 to 1.

    `soft`, `hard`, `checkpoint`, `interpreter`, `input`, `output` and `snapshot` are the times that `JobResult.metrics`
    describes for tasks. `lock` is the time in which the thread waited for the interpreter lock. `cpu`, `run_delay`,
    `disk_wait` and `lock` are None if the machine does not provide them.
    """

    vertex: int
    subtask: int
    taskmanager: int
    ended: bool
    busy: float
    idle: float
    soft: float
    hard: float
    checkpoint: float
    throttled: float
    interpreter: float
    input: float
    output: float
    snapshot: float
    cpu: float | None
    run_delay: float | None
    disk_wait: float | None
    lock: float | None
    in_pool_usage: float
    out_pool_usage: float
    input_queue: int
    operators: dict[int, OperatorWindow]

    @property
    def blocked(self) -> float:
        """The share of the window in which the task waited for room in its output."""
        return self.soft + self.hard

    @property
    def kept_back(self) -> float:
        """The share of the window in which other tasks of its process kept the task from its work."""
        return min(self.busy, self.interpreter + (self.lock or 0.0))

    @property
    def busiest(self) -> OperatorWindow:
        """The operator of the task's chain that worked most."""
        return max(self.operators.values(), key=lambda each: each.busy)

    @property
    def rows_in(self) -> int:
        """The rows that the first operator of the chain took."""
        return next(iter(self.operators.values())).rows_in

    @property
    def batches_in(self) -> int:
        """The batches that the first operator of the chain took."""
        return next(iter(self.operators.values())).batches_in

    @property
    def true_rate(self) -> float | None:
        """The rows that the task takes per second of its work, or None if it took no rows."""
        seconds = next(iter(self.operators.values())).seconds
        return self.rows_in / (self.busy * seconds) if self.busy > 0 and self.rows_in else None


@dataclass(frozen=True, slots=True)
class ProcessWindow:
    """The process of a TaskManager or of the driver, and the machine `host` on which it runs.

    The names of values are the names in `machine` of `JobResult.metrics`.
    """

    host: str
    #: The length of the window.
    seconds: float
    _values: Counters
    _rates: Mapping[str, float | None]
    #: The network memory that all outputs and inputs could use, divided by the network memory that exists.
    memory_usage: float | None = None

    def value(self, name: str) -> float | None:
        """Return the value of `name` in the last report of the window, or None if the machine does not provide it."""
        return self._values.get(name)

    def rate(self, name: str) -> float | None:
        """Return the growth of a total per second, or None if the machine does not provide the total."""
        return self._rates.get(name)

    @property
    def pid(self) -> tuple[float, float | None] | None:
        """The number of the process and that of its namespace, or None in old recordings, which do not have them."""
        pid = self._values.get("pid")
        return None if pid is None else (pid, self._values.get("pid_namespace"))

    @property
    def affinity(self) -> frozenset[int] | None:
        """The processors on which the process may run, or None if this is unknown."""
        affinity = self._values.get("affinity")
        return None if affinity is None else frozenset(affinity)

    @property
    def quotas(self) -> Mapping[int, float]:
        """How many processors the process's control groups may use, by the number of the group, if this is known."""
        return dict(self._values.get("quotas") or ())

    @property
    def lock_wait(self) -> float:
        """The mean wait of a thread for the interpreter lock, in seconds, or 0 if the wait is unknown.

        If the measuring thread did not get the lock in the whole window, the result is the length of the window.
        """
        probes, waited = self.rate("lock_probes"), self.rate("lock_wait_s")
        if probes is None or waited is None:
            return 0.0
        return waited / probes if probes else self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A job between two snapshots of one attempt. `begin` and `end` are in seconds since the epoch."""

    topology: Topology
    begin: float
    end: float
    tasks: tuple[TaskWindow, ...]
    #: The processes by the number of their TaskManager, without processes that sent no new report in the window.
    processes: Mapping[int, ProcessWindow]
    channels: ReportedChannels = field(default_factory=lambda: ReportedChannels(()))
    links: tuple[LinkWindow, ...] = ()
    #: The exchanges by name.
    edges: Mapping[str, EdgeWindow] = field(default_factory=dict)
    #: The driver's process. None in old recordings, which do not contain it.
    driver: ProcessWindow | None = None
    #: The size of a network buffer in bytes, or None in old recordings, which do not contain this value.
    segment_size: int | None = None
    _by_vertex: dict[int, list[TaskWindow]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def of(self, vertex: int) -> list[TaskWindow]:
        """Return the tasks of a vertex that have not ended, sorted by subtask."""
        return self._by_vertex.get(vertex, [])

    def has_ended(self, vertex: int) -> bool:
        """Return whether all tasks of a vertex are known to have ended."""
        ended = sum(task.ended for task in self.tasks if task.vertex == vertex)
        return ended == self.topology.vertices[vertex].parallelism

    def blocked(self, vertex: int) -> float:
        """Return the largest blocked share of a vertex's tasks: the worst subtask counts."""
        return max((task.blocked for task in self.of(vertex)), default=0.0)

    def busy(self, vertex: int) -> float:
        """Return the largest busy share of a vertex's tasks."""
        return max((task.busy for task in self.of(vertex)), default=0.0)

    def idle(self, vertex: int) -> float:
        """Return the smallest idle share of a vertex's tasks."""
        return min((task.idle for task in self.of(vertex)), default=1.0)

    def inflow(self, vertex: int) -> int:
        """Return the number of rows that the producers of a vertex emitted.

        Rows that a producer emitted for other consumers or side outputs count, too.
        """
        return sum(self._rows_for(edge) for edge in self.topology.edges if edge.target == vertex)

    def _rows_for(self, edge: EdgeShape) -> int:
        """Return the number of rows that the producers of an exchange emitted, without those that it leaves out."""
        emitted = sum(
            task.operators[edge.operator].rows_out
            for task in self.tasks
            if task.vertex == edge.source and edge.operator in task.operators
        )
        sent = self.edges.get(edge.name)  # old recordings do not have it
        return emitted if sent is None else min(emitted, sent.rows)

    def taken(self, vertex: int) -> int:
        """Return the number of rows that the tasks of a vertex took."""
        return sum(task.rows_in for task in self.tasks if task.vertex == vertex)

    def processes_on(self, host: str) -> list[ProcessWindow]:
        """Return the job's processes on a machine, the driver's included. One with several TaskManagers comes once."""
        drivers = [] if self.driver is None else [self.driver]
        here = [process for process in (*drivers, *self.processes.values()) if process.host == host]
        return list({process.pid or number: process for number, process in enumerate(here)}.values())

    @property
    def cpu(self) -> float | None:
        """The mean number of processors that all tasks used together, or None if a task's use is unknown."""
        used = [task.cpu for task in self.tasks if task.cpu is not None]
        return sum(used) if len(used) == len(self.tasks) else None


def window_of(topology: Topology, before: MetricsSnapshot, after: MetricsSnapshot) -> Window:
    """Return the window between two snapshots. Raises ValueError if they are not two moments of one attempt."""
    if before.attempt != after.attempt or not before.at < after.at or len(before.reports) != len(after.reports):
        raise ValueError("a window needs two moments of one attempt, the earlier one first")
    tasks: list[TaskWindow] = []
    processes: dict[int, ProcessWindow] = {}
    reports: list[tuple[Counters, Counters]] = []
    links: list[LinkWindow] = []
    for number, (old, new) in enumerate(zip(before.reports, after.reports, strict=True)):
        seconds = new["clock_s"] - old["clock_s"]
        if seconds <= 0:
            continue
        tasks += _tasks(topology, number, old, new, seconds)
        rates = _machine_rates(old, new, seconds)
        processes[number] = ProcessWindow(new["host"], seconds, new["machine"], rates, _memory_usage(new))
        reports.append((old, new))
        links += link_windows(number, old, new)
    tasks.sort(key=lambda task: (task.vertex, task.subtask))
    by_vertex: dict[int, list[TaskWindow]] = {}
    for task in tasks:
        if not task.ended:
            by_vertex.setdefault(task.vertex, []).append(task)
    return Window(
        topology=topology,
        begin=before.at,
        end=after.at,
        tasks=tuple(tasks),
        processes=processes,
        channels=ReportedChannels(reports),
        links=tuple(links),
        edges=edge_windows(reports),
        driver=_driver(before.driver, after.driver),
        segment_size=next((new.get("network_memory", {}).get("segment_size") for _, new in reports), None),
        _by_vertex=by_vertex,
    )


def _machine_rates(old: Counters, new: Counters, seconds: float) -> Mapping[str, float | None]:
    """Return the growth of the machine's totals per second, by their own clock: a report repeats them for a second.

    Older recordings do not have this clock; `seconds` lie between their reports.
    """
    before, after = old["machine"], new["machine"]
    seconds = after["clock_s"] - before["clock_s"] if "clock_s" in before else seconds
    return _changes(before, after, seconds) if seconds > 0 else {}


def _driver(old: Counters | None, new: Counters | None) -> ProcessWindow | None:
    seconds = 0.0 if old is None or new is None else new["clock_s"] - old["clock_s"]
    if old is None or new is None or seconds <= 0:
        return None
    return ProcessWindow(new["host"], seconds, new, _changes(old, new, seconds))


def _memory_usage(report: Counters) -> float | None:
    usage: float | None = report.get("network_memory", {}).get("requested_usage")
    return usage


def _tasks(topology: Topology, process: int, old: Counters, new: Counters, seconds: float) -> Iterator[TaskWindow]:
    before = {(task["vertex"], task["subtask"]): task for task in old["tasks"]}
    operators_before = {(row["node"], row["subtask"]): row for row in old["operators"]}
    rows = {(row["node"], row["subtask"]): row for row in new["operators"]}
    for task in new["tasks"]:
        vertex, subtask = task["vertex"], task["subtask"]
        earlier = before.get((vertex, subtask))
        if earlier is None:  # a task of a later stage, which started after the first snapshot
            continue
        own = _own_seconds(earlier, task, seconds)
        share = _changes(earlier, task, own)
        yield TaskWindow(
            vertex=vertex,
            subtask=subtask,
            taskmanager=process,
            ended=task["ended"],
            busy=share["busy_s"],
            idle=share["idle_s"],
            soft=share["soft_backpressured_s"],
            hard=share["hard_backpressured_s"],
            checkpoint=share["checkpoint_wait_s"],
            throttled=share.get("throttle_wait_s") or 0.0,  # older recordings do not have it
            interpreter=share.get("interpreter_wait_s") or 0.0,  # older recordings do not have it
            input=share["input_s"],
            output=share["output_s"],
            snapshot=share["snapshot_s"],
            cpu=share["cpu_s"],
            run_delay=share["run_delay_s"],
            disk_wait=share.get("disk_wait_s"),  # older recordings do not have it
            lock=_lock_wait(share),
            in_pool_usage=task["in_pool_usage"],
            out_pool_usage=task["out_pool_usage"],
            input_queue=task["input_queue"],
            operators={
                each.id: _operator(operators_before.get((each.id, subtask), {}), rows[each.id, subtask], own)
                for each in topology.vertices[vertex].operators
            },
        )


def _lock_wait(share: Mapping[str, float | None]) -> float | None:
    """Return the share of the time in which a thread waited for the interpreter lock, or None if this is unknown.

    Samples do not tell a thread that waits for the lock from the thread that holds it. A thread that uses a processor,
    or waits for one, holds the lock unless the samples say that it runs without.
    """
    at_lock, running = share.get("at_lock_s"), share.get("running_s")  # older recordings do not have them
    cpu, delay = share["cpu_s"], share["run_delay_s"]
    if at_lock is None or running is None or cpu is None or delay is None:
        return None
    return max(0.0, at_lock - max(0.0, cpu + delay - running))


def _own_seconds(old: Counters, new: Counters, seconds: float) -> float:
    """Return the seconds between the readings of a task's times in two reports.

    They differ from the seconds between the reports: where tasks compute, the reporting thread waits for the
    interpreter lock between the readings of two tasks, often for tenths of a second. The times of a task add up to its
    age. For a task younger than half of the window, return `seconds`, since shares of its age would depend on chance.
    """
    own = sum(new.get(name, 0.0) - old.get(name, 0.0) for name in _TIMES)
    return own if own > seconds / 2 else seconds


def _operator(old: Counters, new: Counters, seconds: float) -> OperatorWindow:
    def count(name: str) -> int:
        return int(new.get(name, 0) - old.get(name, 0))

    unread, before = new.get("unread"), old.get("unread") or {}
    return OperatorWindow(
        id=new["node"],
        busy=max(0.0, new["busy_s"] - old.get("busy_s", 0.0)) / seconds,
        rows_in=count("rows_in"),
        rows_out=count("rows_out"),
        batches_in=count("batches_in"),
        seconds=seconds,
        lag_s=new.get("lag_s"),
        lag_growth=_growth(old.get("lag_s"), new.get("lag_s"), seconds),
        unread=unread,
        unread_growth={split: (count - before.get(split, count)) / seconds for split, count in (unread or {}).items()},
        watermark=new.get("watermark"),
        watermark_growth=_growth(_seconds(old.get("watermark")), _seconds(new.get("watermark")), seconds),
        latency_s=new.get("latency_s"),
        latency_growth=_growth(old.get("latency_s"), new.get("latency_s"), seconds),
        is_idle=new.get("is_idle", False),
        late_rows=count("late_rows"),
        lookup_wait=max(0.0, new.get("lookup_wait_s", 0.0) - old.get("lookup_wait_s", 0.0)) / seconds,
        split=new.get("split"),
        split_has_rows=new.get("split_has_rows"),
        split_silent_s=new.get("split_silent_s"),  # older recordings do not have it
    )


def _growth(before: float | None, after: float | None, seconds: float) -> float | None:
    return None if before is None or after is None else (after - before) / seconds


def _seconds(watermark: int | None) -> float | None:
    """Return the time of a watermark in seconds, or None before the first and after the last row."""
    return watermark / 1e6 if watermark is not None and MIN_TIME < watermark < MAX_TIME else None


def _changes(old: Counters, new: Counters, seconds: float) -> dict[str, Any]:
    """Return the growth of each total per second, or None for a value that is unknown or not a number."""
    changes: dict[str, float | None] = {}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, (int, float)) and isinstance(before, (int, float)):
            changes[name] = max(0.0, value - before) / seconds
        else:
            changes[name] = None
    return changes


def mean(tasks: Sequence[TaskWindow], value: Callable[[TaskWindow], float]) -> float:
    """Return the mean of `value(task)` over the tasks."""
    return sum(value(task) for task in tasks) / len(tasks)


def peers(values: Sequence[float]) -> float:
    """Return what is usual among tasks: the median of `values`, one for each task. Without tasks, return 0."""
    return median(values) if values else 0.0
