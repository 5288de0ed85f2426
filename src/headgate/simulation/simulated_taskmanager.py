"""A TaskManager of a simulation: the runtime's own tasks, pools and links, driven in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from headgate.config import Config
from headgate.errors import HeadgateError, TaskManagerLost
from headgate.exchange.pending import PendingBudget
from headgate.plan.execution import ExecutionPlan
from headgate.runtime.control_messages import FromTaskManager, ReportCheckpointMetrics, TaskFinished, ThrottleOrder
from headgate.runtime.task.exchange_parts import network_memory
from headgate.runtime.task.task import Task
from headgate.runtime.task.task_builder import BuiltTask, TaskBuilder
from headgate.runtime.task.task_manager_services import TaskManagerServices
from headgate.runtime.taskmanager.counters import LinkBytes, snapshot
from headgate.runtime.taskmanager.link_ends import LinkEnds
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.throttling.throttle_place import ThrottlePlace
from headgate.runtime.taskmanager.throttling.throttling_of import throttling_of
from headgate.simulation.costs import Line
from headgate.simulation.task_driver import TaskDriver
from headgate.simulation.virtual_network import VirtualNetwork
from headgate.simulation.virtual_socket import VirtualSocket, connection
from headgate.simulation.work import Work, WorkingParts
from headgate.simulation.world import EPOCH

#: Takes a batch of a sink, with the node of the sink and the number of a checkpoint.
Deliver = Callable[[int, pa.RecordBatch, int], None]


class SimulatedTaskManager:
    """TaskManager `index` of a plan. `fail` gets the error of each task that fails.

    `report` gets the messages to the driver, each with the number of the TaskManager.

    Call `build`, then `connect`, then `begin`. `close` releases everything.
    """

    def __init__(
        self,
        job: str,
        index: int,
        plan: ExecutionPlan,
        config: Config,
        work: Work,
        *,
        deliver: Deliver,
        fail: Callable[[HeadgateError], None],
        report: Callable[[int, FromTaskManager], None],
    ) -> None:
        world = work.world
        self._work = work
        self._index = index
        self._plan = plan
        self._fail = fail
        self._report = report
        self._pool = network_memory(config)
        self._network = VirtualNetwork(work)
        self._links = LinkEnds(
            self._network,
            config,
            index=index,
            find=lambda edge, producer: self._builder.partitions.get((edge, producer)),
            lost=lambda peer, reason: fail(TaskManagerLost(f"TaskManager {peer} was lost: {reason}")),
            clock=world.clock,
        )
        self._sockets: list[VirtualSocket] = []
        self._drivers: list[TaskDriver] = []
        self.built: list[BuiltTask] = []
        self.running = 0
        #: When the last task of this TaskManager ended.
        self.ended_at = 0.0
        self._signals = SignalCount()
        self._throttling = throttling_of(self._throttle_place(job, config))
        services = TaskManagerServices(
            job=job,
            index=index,
            config=config,
            plan=plan,
            pool=self._pool,
            budget=PendingBudget(),
            state_memory=None,
            consumer_end=self._links.consumer_end,
            deliver=lambda node, batch, checkpoint, _task: deliver(node, batch, checkpoint),
            opened=lambda: None,
            started_at=lambda: EPOCH,
            report_part=lambda part: report(index, ReportCheckpointMetrics(part=part)),
            attempt=0,
            checkpoint=0,
            restore=None,
            clocks=world.clocks,
            new_mailbox=self._new_driver,
            upload=None,
            throttling=self._throttling,
        )
        self._builder = TaskBuilder(services, WorkingParts(config, self._pool, work))

    def _throttle_place(self, job: str, config: Config) -> ThrottlePlace:
        clocks = self._work.world.clocks
        return ThrottlePlace(
            job=job,
            config=config,
            index=self._index,
            plan=self._plan,
            clocks=clocks,
            elapsed=lambda: clocks.wall() - EPOCH,
            network=self._network,
            links=self._links,
            send=partial(self._report, self._index),
            count=self._signals,
            chance=self._work.world.throttle_random,
        )

    def _new_driver(self) -> TaskDriver:
        self._drivers.append(TaskDriver(self._work, self._task_done))
        return self._drivers[-1]

    def build(self) -> None:
        """Build the tasks. Raises InsufficientBuffers if network memory is too small."""
        self.built = self._builder.build(range(len(self._plan.job.vertices)))
        self.running = len(self.built)

    def connect(self, taskmanagers: Sequence[SimulatedTaskManager], line: Line) -> None:
        """Connect to the TaskManagers from which this one receives. All of them must be built."""
        for end in self._links.consumer_ends:
            producer = taskmanagers[end.peer]
            ours, theirs = connection(self._work, line)
            self._sockets.append(ours)
            producer._sockets.append(theirs)
            producer._network.post(partial(producer._links.accepted, theirs, self._index))
            self._network.post(partial(end.established, ours))

    def begin(self) -> None:
        """Let the tasks open their operators, and take their first batches."""
        if self._throttling is not None and self.built:  # without tasks, nothing would close it
            self._throttling.start()
        for built in self.built:
            for channel in built.channels:
                channel.start()
        for driver, built in zip(self._drivers, self.built, strict=True):
            driver.start(built.task)
            built.task.begin()

    def on_order(self, order: ThrottleOrder) -> None:
        """Follow an order of the throttle's part on the driver."""
        if self._throttling is not None:
            self._signals.note()
            self._throttling.on_order(order)

    def _task_done(self, task: Task, error: HeadgateError | None) -> None:
        self.running -= 1
        self.ended_at = self._work.world.clock()
        if self._throttling is not None and not self.running:
            self._throttling.close()
        if error is not None:
            self._fail(error)
            return
        built = next(built for built in self.built if built.task is task)
        finished = TaskFinished(vertex=built.vertex.id, subtask=built.subtask, took_part=0, pending={}, final={})
        self._report(self._index, finished)
        for each in built.gates:
            each.gate.release()  # this tells the producers that all data were consumed

    @property
    def is_waiting(self) -> bool:
        """Whether all tasks wait for another thread to wake them."""
        return all(driver.is_waiting for driver in self._drivers)

    @property
    def is_consumed(self) -> bool:
        """Whether all tasks have ended, and consumers have taken all their output."""
        return not self.running and all(partition.is_consumed for built in self.built for partition in built.partitions)

    def metrics(self) -> dict[str, Any]:
        """Return the counters of this TaskManager now, as a real one reports them."""
        sent = sum(sock.in_kernel for sock in self._sockets)
        return snapshot(
            self.built,
            self._pool,
            remote_bytes=self._links.bytes_received,
            sendfile_bytes=0,
            throttle_signals=self._signals.signals,
            link_bytes=LinkBytes(self._links.bytes_under_way.writing, sent),
            host=f"simulated-{self._index}",
            clock=self._work.world.clock(),
            machine={},
            channels={},
            links=[],
            collected=lambda _thread: 0.0,
        )

    def close(self) -> None:
        """Close the tasks that still run, the links and the pools. Raises ExchangeError if a buffer is still lent."""
        for built in self.built:
            if not built.task.has_ended:
                built.task.close()
        self._links.close()
        for built in self.built:
            built.release()
        self._builder.discard()
        self._pool.close()
