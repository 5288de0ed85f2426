"""A job in virtual time: its TaskManagers, the world in which they run, and its result."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from headgate.config import Config
from headgate.errors import ConfigError, HeadgateError
from headgate.plan.execution import ExecutionPlan
from headgate.plan.graph import StreamGraph
from headgate.plan.job_graph import build_job_graph
from headgate.plan.network_memory import check_network_memory
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors, Pending
from headgate.runtime.control_messages import FromTaskManager, TaskFinished
from headgate.runtime.master.job import JobResult
from headgate.runtime.master.job_metrics import merge
from headgate.runtime.master.throttle_master import throttle_master_of
from headgate.simulation.costs import Costs, Line
from headgate.simulation.simulated_driver import SimulatedDriver
from headgate.simulation.simulated_taskmanager import SimulatedTaskManager
from headgate.simulation.work import Work
from headgate.simulation.working_nodes import working_graph
from headgate.simulation.world import World
from headgate.throttle.storm_zookeeper import StormZooKeeper
from headgate.throttle.validation import number_above_zero

#: When all tasks have ended, the job looks again after so many virtual seconds whether their output is consumed.
_LEFTOVERS: Final = 1e-3
#: Tasks that have all waited for at least so many virtual seconds wait for each other, whatever else still happens.
_STUCK: Final = 3600.0
#: They have waited for at least so many times the longest time between two checks of a throttle, too.
_CHECKS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResult(JobResult):
    """The result of a simulated job. Its durations are virtual seconds.

    `sha256` is the hash of all `events`. The same job with the same seed has the same hash on every machine.
    """

    events: int = 0
    sha256: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Calls `look` with the time and the job's counters, every `interval` virtual seconds while the job runs.

    An error of `look` ends the job. Raises ConfigError unless `interval` is above 0.
    """

    interval: float
    look: Callable[[float, dict[str, Any]], None]

    def __post_init__(self) -> None:
        number_above_zero("interval", self.interval)


class SimulatedJob:
    """One job on `taskmanagers` virtual TaskManagers. `run` runs it once.

    Raises ConfigError for options that a simulation does not have, and InsufficientBuffers like a real job.
    """

    def __init__(
        self,
        name: str,
        graph: StreamGraph,
        config: Config,
        *,
        taskmanagers: int,
        seed: int = 0,
        costs: Costs | None = None,
        line: Line | None = None,
    ) -> None:
        if config.is_batch or config.checkpoint_dir is not None:
            raise ConfigError("a simulated job has neither checkpoints nor batch mode: leave these options out")
        if any(node.watermark is not None and node.watermark.max_drift is not None for node in graph.nodes):
            raise ConfigError("a simulated job does not align watermarks: leave max_drift out")
        if isinstance(config.throttle, StormZooKeeper):
            raise ConfigError("a simulated job has no ZooKeeper: use another throttle")
        costs = costs or Costs()
        names = {node.name for node in graph.nodes}
        if unknown := sorted(costs.rows.keys() - names):
            raise ConfigError(f"Costs: rows={unknown} name no node of the job: its nodes are {sorted(names)}")
        self._name = name
        self._seed = seed
        self._line = line or Line()
        self.world = World(seed)
        self._work = work = Work(self.world, costs)
        self._connectors = DriverConnectors(build_job_graph(graph), name)
        self._sinks = {node.id: node.sink for node in graph.nodes if node.sink is not None}
        self._plan = plan = ExecutionPlan(build_job_graph(working_graph(graph, costs.rows, work.take)), taskmanagers)
        check_network_memory(plan, config)
        self._error: HeadgateError | None = None
        self._tasks_left = 0
        self._taskmanagers = [
            SimulatedTaskManager(
                name,
                index,
                plan,
                config,
                work,
                deliver=self._on_batch,
                fail=self._on_error,
                report=self._on_report,
            )
            for index in range(taskmanagers)
        ]

        orders = [taskmanager.on_order for taskmanager in self._taskmanagers]
        self._driver = SimulatedDriver(self.world, self._line, throttle_master_of(config.throttle, plan), orders)

    def _on_batch(self, node_id: int, batch: pa.RecordBatch, checkpoint: int) -> None:
        self._sinks[node_id].deliver(batch, checkpoint)

    def _on_error(self, error: HeadgateError) -> None:
        self._error = self._error or error
        self.world.stop()

    def _on_report(self, sender: int, message: FromTaskManager) -> None:
        self._driver.on_report(sender, message)
        if isinstance(message, TaskFinished):
            self._tasks_left -= 1
            if not self._tasks_left:
                self.world.stop()

    def run(self, seconds: float = math.inf, watch: Watch | None = None) -> SimulatedResult:
        """Run the job until it ends, at most `seconds` of virtual time. Raises the first error of a task.

        A job that ends commits its sinks. A job that is stopped after `seconds` does not.
        """
        self._connectors.prepare()
        try:
            with _chance(self._seed):
                self._start()
                try:
                    self._follow(seconds, watch)
                except BaseException:  # of `look`
                    self._abandon()
                    raise
            return self._finish()
        finally:
            self._connectors.release()

    def _start(self) -> None:
        for taskmanager in self._taskmanagers:
            taskmanager.build()
            self._tasks_left += taskmanager.running
        for taskmanager in self._taskmanagers:
            taskmanager.connect(self._taskmanagers, self._line)
        self._driver.start()
        for taskmanager in self._taskmanagers:
            taskmanager.begin()

    def _follow(self, seconds: float, watch: Watch | None) -> None:
        """Run the world until the job has ended, failed, or reached `seconds`.

        The world need not become idle: the last tasks may have ended, and a throttle may still check something again
        and again.
        """
        looks = 1
        while self._runs and self.world.now < seconds:
            until = seconds if watch is None else min(seconds, looks * watch.interval)
            self.world.run(min(until, self.world.now + (_STUCK if self._tasks_left else _LEFTOVERS)))
            if self._runs and self._is_stuck:
                since = self._work.last_task_turn
                self._error = HeadgateError(f"{self._name}: all tasks wait for each other since {since:g} s")
            if watch is not None and (self.world.now >= until or not self._runs):
                looks += 1
                watch.look(self.world.now, self.metrics())

    @property
    def _is_stuck(self) -> bool:
        """Whether nothing can wake a task. Checks of a throttle may go on, but would have done so by now."""
        longest = max(_STUCK, _CHECKS * self.world.longest_check)
        has_waited_long = self.world.now - self._work.last_task_turn >= longest
        return self.world.is_idle or (has_waited_long and all(each.is_waiting for each in self._taskmanagers))

    @property
    def _runs(self) -> bool:
        return self._error is None and not self._is_over

    @property
    def _is_over(self) -> bool:
        return all(taskmanager.is_consumed for taskmanager in self._taskmanagers)

    def metrics(self) -> dict[str, Any]:
        """Return the job's counters now, in the form of `JobHandle.metrics`."""
        return merge([taskmanager.metrics() for taskmanager in self._taskmanagers])

    def _abandon(self) -> None:
        for taskmanager in self._taskmanagers:
            taskmanager.close()
        self._connectors.abort()

    def _finish(self) -> SimulatedResult:
        """Release everything, and commit the sinks of a job that has ended."""
        ended, metrics = self._is_over, self.metrics()
        duration = max(each.ended_at for each in self._taskmanagers) if ended else self.world.now
        for taskmanager in self._taskmanagers:
            taskmanager.close()
        if self._error is not None:
            self._connectors.abort()
            raise self._error.at(job=self._name)
        if ended:
            self._connectors.commit(self._pending(), 0)
            self._connectors.finish()
        else:
            self._connectors.abort()
        return SimulatedResult(
            name=self._name,
            rows_in=metrics["rows_in"],
            rows_out=metrics["rows_out"],
            late_rows=metrics["late_rows"],
            duration_s=duration,
            restarts=0,
            metrics=metrics,
            events=self.world.log.events,
            sha256=self.world.log.sha256,
        )

    def _pending(self) -> Pending:
        """Return what the writers of sinks have for the commit."""
        pending: dict[str, list[Any]] = {}
        for taskmanager in self._taskmanagers:
            for built in taskmanager.built:
                for key, written in built.state.pending.items():
                    pending.setdefault(key, []).append(written)
        return pending


@contextmanager
def _chance(seed: int) -> Iterator[None]:
    """Seed Python's random numbers, which route latency markers, during the block. Then restore their state."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)
