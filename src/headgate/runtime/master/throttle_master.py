"""The driver's part of a throttle: takes the reports of the TaskManagers, and returns orders to send to them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from headgate.plan.execution import ExecutionPlan
from headgate.plan.job_graph import JobGraph
from headgate.runtime.control_messages import (
    AnnounceBackPressure,
    EndTrees,
    OrderSleep,
    RelayBackPressure,
    ReleaseBatch,
    ReportBatch,
    ReportCheckpointMetrics,
    ReportTrees,
    RequestSleep,
    SetRate,
    TaskFinished,
    ThrottleOrder,
    ToThrottle,
)
from headgate.throttle.acker import Acker, MessageDone, TreeEnded, TreeStarted
from headgate.throttle.batch_schedule import BatchSchedule
from headgate.throttle.heron_spout import HeronSpout
from headgate.throttle.jstorm_master import JStormMaster
from headgate.throttle.max_pending import MaxPending
from headgate.throttle.mechanism import Mechanism, Task
from headgate.throttle.spark_pid import SparkPid
from headgate.throttle.throttle_coordinator import (
    SleepLonger,
    StartRequest,
    StopRequest,
    ThrottleCoordinator,
)
from headgate.throttle.validation import duration

#: The messages that the driver's part takes.
Heard: TypeAlias = ToThrottle | ReportCheckpointMetrics | TaskFinished
#: The number of batches that `batches` holds.
_BATCHES: Final = 100
#: An order, and the numbers of the TaskManagers that get it. None means all.
Order = tuple[ThrottleOrder, Sequence[int] | None]


class ThrottleMaster(Protocol):
    """The driver's part of a throttle, for one attempt. The job's thread calls the methods. Times are in seconds of the
    monotonic clock."""

    @property
    def deadline(self) -> float:
        """The time when the job's thread must call `on_time`; infinity means never."""

    @property
    def batches(self) -> Sequence[Mapping[str, float]]:
        """The last batches of `SparkPid`, as `JobResult.metrics` shows them."""

    def start(self, now: float) -> None:
        """Begin. The job's thread calls this when all tasks begin."""

    def on_time(self, now: float) -> Sequence[Order]: ...

    def on_message(self, now: float, sender: int, message: Heard) -> Sequence[Order]:
        """Take a report of TaskManager `sender`, and return the orders to send because of it."""


def throttle_master_of(mechanism: Mechanism | None, plan: ExecutionPlan) -> ThrottleMaster | None:
    """Return the driver's part of a throttle, or None if the throttle has no such part."""
    match mechanism:
        case JStormMaster():
            job = plan.job
            inputs = {vertex.id: [edge.source for edge in job.inputs(vertex)] for vertex in job.vertices}
            parallelism = {vertex.id: vertex.parallelism for vertex in job.vertices}
            return SleepMaster(mechanism.coordinator(inputs, parallelism, _with_own_throttle(job)))
        case HeronSpout():
            return Relay(plan.taskmanagers)
        case MaxPending():
            return AckMaster(mechanism, plan.place)
        case SparkPid():
            return BatchMaster(mechanism, plan.job)
        case _:
            return None


def _with_own_throttle(job: JobGraph) -> set[int]:
    """Return the sources that have a throttle of their own, and do not ask that of the job."""
    throttles = {vertex.id: vertex.head.throttle for vertex in job.vertices}
    return {each for each, throttle in throttles.items() if throttle and throttle.source_policy(0.0) is not None}


class _Master:
    """The base class of the driver's parts, with no timed work. Subclasses with timed work override its methods."""

    deadline = math.inf
    batches: Sequence[Mapping[str, float]] = ()

    def start(self, now: float) -> None: ...

    def on_time(self, now: float) -> Sequence[Order]:
        return ()


class Relay(_Master):
    """The driver's part of `HeronSpout`. It relays a TaskManager's announcement to all others.

    In Heron, the stream managers send announcements to each other directly.
    """

    def __init__(self, taskmanagers: int) -> None:
        self._taskmanagers = range(taskmanagers)

    def on_message(self, now: float, sender: int, message: Heard) -> Sequence[Order]:
        if not isinstance(message, AnnounceBackPressure):
            return ()
        others = [each for each in self._taskmanagers if each != sender]
        return [(RelayBackPressure(taskmanager=sender, starts=message.starts), others)]


class AckMaster(_Master):
    """The driver's part of `MaxPending`. Its acker finds out which messages of sources are processed.

    The orders of `on_message` tell each source subtask which of its messages are processed. `place` returns the
    TaskManager that runs a subtask.
    """

    def __init__(self, mechanism: MaxPending, place: Callable[[int], int]) -> None:
        self._timeout = duration("timeout", mechanism.timeout)
        self._place = place
        self._acker = Acker()

    def on_time(self, now: float) -> Sequence[Order]:
        if now >= self.deadline:
            self._acker.rotate()
            self.deadline = math.inf
            self._plan_rotation(now)
        return ()

    def _plan_rotation(self, now: float) -> None:
        """Set the deadline if the acker holds trees. Without trees the job's thread need not wake up."""
        if not len(self._acker):
            self.deadline = math.inf
        elif self.deadline == math.inf:
            self.deadline = now + self._timeout

    def on_message(self, now: float, sender: int, message: Heard) -> Sequence[Order]:
        if not isinstance(message, ReportTrees):
            return ()
        signals: list[TreeStarted | MessageDone] = [
            *(TreeStarted(root, ids, (vertex, subtask)) for root, ids, vertex, subtask in message.started),
            *(MessageDone(root, ids) for root, ids in message.done),
        ]
        orders = self._tell(ended for signal in signals if (ended := self._acker.on_signal(signal)) is not None)
        self._plan_rotation(now)
        return orders

    def _tell(self, ended: Iterable[TreeEnded]) -> list[Order]:
        trees: dict[int, list[tuple[int, int, int]]] = {}
        for tree in ended:
            ((vertex, subtask),) = tree.tasks
            trees.setdefault(self._place(subtask), []).append((vertex, subtask, tree.root))
        return [(EndTrees(trees=each), [taskmanager]) for taskmanager, each in trees.items()]


class SleepMaster(_Master):
    """The driver's part of `JStormMaster`. It passes requests to the coordinator, and sends the coordinator's orders to
    all."""

    def __init__(self, coordinator: ThrottleCoordinator) -> None:
        self._coordinator = coordinator

    def on_message(self, now: float, sender: int, message: Heard) -> Sequence[Order]:
        if not isinstance(message, RequestSleep):
            return ()
        task, flow_ms = message.task, message.flow_ms
        request = StopRequest(task) if flow_ms is None else StartRequest(task, flow_ms)
        return [
            (
                OrderSleep(tasks=list(order.tasks), flow_ms=order.flow_ms if isinstance(order, SleepLonger) else None),
                None,
            )
            for order in self._coordinator.on_signal(now, request)
        ]


class BatchMaster(_Master):
    """The driver's part of `SparkPid`. It releases one batch at a time, and sets the rates of sources from the batch
    times.

    A barrier closes each batch. The batch is complete when the barrier has reached all tasks without outputs, and all
    sources have reported their rows. The batch does not wait for tasks that have ended.
    """

    def __init__(self, mechanism: SparkPid, job: JobGraph) -> None:
        self._interval = duration("batch_interval", mechanism.batch_interval)
        senders = {edge.source for edge in job.edges}
        #: The tasks without outputs, by name, and the subtasks of sources.
        self._ends: dict[str, Task] = {}
        self._sources: set[Task] = set()
        for vertex in job.vertices:
            tasks = {f"{vertex.name}[{number}]": (vertex.id, number) for number in range(vertex.parallelism)}
            if vertex.id not in senders:
                self._ends |= tasks
            if vertex.head.source is not None:
                self._sources.update(tasks.values())
        self._controllers = {task: mechanism.rate_controller(task) for task in sorted(self._sources)}
        self._schedule: BatchSchedule | None = None
        self._batch = -1
        self._ended: set[Task] = set()
        #: The tasks that the barrier has not reached yet, and the rows of the batch by source subtask.
        self._open: set[Task] = set()
        self._rows: dict[Task, int] = {}
        self._completed_batches: deque[Mapping[str, float]] = deque(maxlen=_BATCHES)

    @property
    def batches(self) -> Sequence[Mapping[str, float]]:  # type: ignore[override]
        return tuple(self._completed_batches)

    @property
    def deadline(self) -> float:  # type: ignore[override]
        return math.inf if self._schedule is None else self._schedule.next_release

    def start(self, now: float) -> None:
        self._schedule = BatchSchedule(self._interval, now)

    def on_time(self, now: float) -> Sequence[Order]:
        if self._schedule is None or now < self.deadline:
            return ()
        self._batch = self._schedule.release(now)
        self._open = set(self._ends.values()) - self._ended
        self._rows = {}
        return [(ReleaseBatch(batch=self._batch), None)]

    def on_message(self, now: float, sender: int, message: Heard) -> Sequence[Order]:
        match message:
            case ReportBatch() if message.batch == self._batch:
                self._rows[message.task] = message.rows
            case ReportCheckpointMetrics() if message.part["checkpoint"] == self._batch + 1:
                self._open.discard(self._ends.get(message.part["task"], (-1, 0)))
            case TaskFinished():
                self._ended.add((message.vertex, message.subtask))
                self._open.discard((message.vertex, message.subtask))
            case _:
                return ()
        return self._completed(now)

    def _completed(self, now: float) -> list[Order]:
        """Return orders with the new rates if the current batch is complete."""
        if self._schedule is None or self._schedule.next_release != math.inf:
            return []
        if self._open or self._sources - self._ended - self._rows.keys():
            return []
        batch = self._schedule.completed(now)
        row = {"number": batch.number, "rows": sum(self._rows.values())}
        self._completed_batches.append({**row, "scheduling_s": batch.scheduling, "processing_s": batch.processing})
        updates = [controller.completed(batch, self._rows) for controller in self._controllers.values()]
        return [
            (SetRate(tasks=list(update.tasks), rows_per_s=update.rows_per_s), None)
            for update in updates
            if update is not None
        ]
