"""`TaskManager`: the tasks of one process, its network thread, its network memory, and its link to the driver.

A TaskManager lives for one attempt of one job. It builds its tasks and registers. When all TaskManagers have
registered, the tasks start. The TaskManager reports to the driver while the tasks run, and ends when the driver orders
it. However it ends, it leaves no thread, socket or segment behind. The exception is a user function that does not
return: the TaskManager cannot end the function, and names it in an error.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from headgate.errors import DriverLost, ExchangeError, HeadgateError, TaskManagerLost, to_wire
from headgate.exchange.nameless_files import check_folder
from headgate.exchange.partition import ResultPartition
from headgate.exchange.pending import PendingBudget
from headgate.memory.network_pool import NetworkBufferPool
from headgate.plan.stages import Stages
from headgate.runtime.control_messages import (
    AlignSource,
    AllFinished,
    Cancel,
    Close,
    ContinueSources,
    Delivered,
    Drain,
    EndTrees,
    Failed,
    FromDriver,
    InjectBarrier,
    OrderSleep,
    Ready,
    Registered,
    RelayBackPressure,
    ReleaseBatch,
    ReportCheckpointMetrics,
    ReportMetrics,
    ReportWatermark,
    RunStage,
    SampleKeys,
    SetRate,
    StartTasks,
    Stuck,
    TakeProfile,
    TaskFinished,
    TraceChannel,
)
from headgate.runtime.deployment import TaskManagerSpec, cut_off
from headgate.runtime.task.clocks import SYSTEM
from headgate.runtime.task.exchange_parts import network_memory
from headgate.runtime.task.state_memory import StateMemory
from headgate.runtime.task.task import Task
from headgate.runtime.task.task_builder import TaskBuilder
from headgate.runtime.task.task_manager_services import TaskManagerServices
from headgate.runtime.task.throttling import Throttling
from headgate.runtime.taskmanager.built_tasks import BuiltTasks
from headgate.runtime.taskmanager.channel_tracer import ChannelTracer
from headgate.runtime.taskmanager.console import Console
from headgate.runtime.taskmanager.data_links import DataLinks
from headgate.runtime.taskmanager.driver_link import DriverLink
from headgate.runtime.taskmanager.key_sampler import KeySampler
from headgate.runtime.taskmanager.measured_tasks import MeasuredTasks, pause_after
from headgate.runtime.taskmanager.profiler import Profiler
from headgate.runtime.taskmanager.state_upload import StateUpload
from headgate.runtime.taskmanager.task_threads import StuckTasks, TaskThreads
from headgate.runtime.taskmanager.throttling.signal_count import SignalCount
from headgate.runtime.taskmanager.throttling.throttle_place import ThrottlePlace
from headgate.runtime.taskmanager.throttling.throttling_of import throttling_of
from headgate.transport.network_thread import NetworkThread
from headgate.transport.sockets import reached_at

log = logging.getLogger(__name__)

#: Seconds in which the network thread must close all links and end.
_NETWORK_TIMEOUT = 2.0
#: Seconds between two checks whether consumers have taken all output, once all tasks have ended.
_CONSUMED_POLL = 0.005
#: Seconds in which the network thread must return the segments that it uses, once all tasks have ended.
RETURN_TIMEOUT = 10.0


class TaskManager:
    """One TaskManager. `run` runs it on the caller's thread. `console` is None if the TaskManager is a thread of the
    driver."""

    def __init__(self, spec: TaskManagerSpec, index: int, host: str, console: Console | None = None) -> None:
        self._spec = spec
        self._index = index
        self._bind_host = spec.config.bind_host or host
        self._host = reached_at(spec.config.bind_host, host)
        self._console = console
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._network = NetworkThread(f"network-{spec.job}-{index}", self._on_network_error)
        self._pool: NetworkBufferPool | None = None
        self._budget = PendingBudget()
        self._driver = DriverLink(
            self._network,
            spec,
            index,
            lambda message: self._events.put(lambda: self._on_message(message)),
            lambda reason: self._events.put(lambda: self._driver_lost(reason)),
        )
        self._upload: StateUpload | None = None
        if not spec.config.is_batch:
            self._upload = StateUpload(spec.credentials.attempt, self._driver.send)
        self._links: DataLinks | None = None
        self._builder: TaskBuilder | None = None
        self._tasks = BuiltTasks()
        self._built = self._tasks.all
        self._throttling = Throttling()
        self._signals = SignalCount()
        self._threads = TaskThreads(lambda task, error: self._events.put(lambda: self._task_done(task, error)))
        self._measured = MeasuredTasks(self._built, self._host, self._signals)
        self._profiler = Profiler(self._driver.send)
        self._tracer = ChannelTracer(self._network, self._driver.send)
        self._key_sampler = KeySampler(self._network, self._driver.send)
        self._running = 0
        self._unopened = 0
        self._started_at = 0.0
        self._return_by: float | None = None
        self._reported = False
        self._over = False
        self._failed = False
        self._unsent_error: HeadgateError | None = None

    def run(self) -> None:
        """Run until the job is over. If the TaskManager fails, it sends the error to the driver.

        Raises an error that could not be sent to the driver. Raises StuckTasks if user functions did not return.
        """
        self._measured.start(sample=self._spec.config.metrics)
        try:
            self._guarded(self._start)
            self._follow_events()
        finally:
            self._measured.stop()
            self._end()
        if self._unsent_error is not None:
            raise self._unsent_error

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run `work`, and report an error that it raises to the driver."""
        try:
            work()
        except HeadgateError as error:
            self._fail(error)
        except Exception as error:
            self._fail(self._unexpected(error))

    def _on_network_error(self, error: Exception) -> None:
        known = error if isinstance(error, HeadgateError) else self._unexpected(error)
        self._events.put(lambda: self._fail(known))

    def _unexpected(self, error: Exception) -> HeadgateError:
        """Return the error that ends the job when a bug of Headgate raises `error`."""
        text = "".join(traceback.format_exception(error)).rstrip()
        what = f"unexpected {type(error).__name__} in TaskManager {self._index}: {error}"
        return HeadgateError(f"{what}\n{text}")

    # --- the start

    def _start(self) -> None:
        config = self._spec.config
        self._network.start()
        links = DataLinks(
            self._network,
            self._spec,
            index=self._index,
            bind_host=self._bind_host,
            find=self._find,
            lost=self._peer_lost,
        )
        self._links = links
        self._driver.connect()
        if self._console is not None:
            self._console.connect(self._driver.send)
        plan = self._spec.plan.load()
        check_folder(config.spill_dir)
        self._pool = network_memory(config)
        throttling = throttling_of(
            ThrottlePlace(
                job=f"{self._spec.job}-{self._spec.credentials.job.hex()}-{self._spec.credentials.attempt}",
                config=config,
                index=self._index,
                plan=plan,
                clocks=SYSTEM,
                elapsed=lambda: SYSTEM.wall() - self._started_at,
                network=self._network,
                links=links,
                send=self._driver.send,
                count=self._signals,
            )
        )
        self._throttling = throttling or self._throttling
        self._builder = TaskBuilder(
            TaskManagerServices(
                job=self._spec.job,
                index=self._index,
                config=config,
                plan=plan,
                pool=self._pool,
                budget=self._budget,
                state_memory=None if config.max_state_memory is None else StateMemory(config.max_state_memory),
                consumer_end=links.consumer_end,
                deliver=self._driver.deliver,
                opened=lambda: self._events.put(self._task_opened),
                started_at=lambda: self._started_at,
                report_part=lambda part: self._driver.send(ReportCheckpointMetrics(part=part)),
                report_watermark=lambda node, subtask, watermark: self._driver.send(
                    ReportWatermark(node=node, subtask=subtask, watermark=watermark)
                ),
                attempt=self._spec.credentials.attempt,
                checkpoint=self._spec.checkpoint,
                restore=self._spec.restore,
                upload=None if self._upload is None else self._upload.store,
                throttling=throttling,
            )
        )
        self._running = len(list(plan.subtasks(self._index)))
        self._built += self._builder.build(Stages(plan, batch=config.is_batch).first)
        self._measured.add(self._built)
        links.serve()
        self._driver.send(Registered(host=self._host, port=links.port, pid=os.getpid()))
        self._open_first_stage()

    def _open_first_stage(self) -> None:
        """Start the first tasks, which open their operators at once.

        These tasks wait for the start of the job before they take a batch. Tasks of later stages are built when their
        input is complete.
        """
        self._unopened = len(self._built)
        self._threads.start(built.task for built in self._built)
        if not self._built:
            self._driver.send(Ready())

    def _find(self, edge: int, producer: int) -> ResultPartition | None:
        return self._builder.partitions.get((edge, producer)) if self._builder is not None else None

    def _peer_lost(self, peer: int, reason: str) -> None:
        error = TaskManagerLost(f"TaskManager {peer} was lost: {reason} (seen by TaskManager {self._index})")
        self._events.put(lambda: self._fail(error))

    # --- the life of the job

    def _follow_events(self) -> None:
        """Handle events and report metrics, until the driver says that the job is over.

        Without metrics it reports once, when all tasks have ended or the job stops.
        """
        report_at = 0.0 if self._spec.config.metrics else math.inf
        while not self._over:
            now = time.monotonic()
            if now >= report_at:
                report_at = now + self._report_metrics()
            wait = _CONSUMED_POLL if self._awaits_consumers else report_at - now
            try:
                event = self._events.get(timeout=None if math.isinf(wait) else wait)
            except queue.Empty:
                if not self._awaits_consumers:
                    self._measured.evidence.note_wakeup(time.monotonic() - report_at)
            else:
                self._guarded(event)
            if self._is_done and not self._reported:
                self._report()

    def _report_metrics(self) -> float:
        """Send the metrics to the driver, and return the seconds until the next report."""
        began = time.thread_time()
        if self._pool is not None:
            self._driver.send(ReportMetrics(metrics=self._metrics(self._pool, is_last=False)))
        return pause_after(time.thread_time() - began)

    def _on_message(self, message: FromDriver) -> None:
        match message:
            case StartTasks():
                self._start_tasks(message)
            case RunStage():
                self._run_stage(message.vertices)
            case Delivered():
                self._driver.delivered(message.size)
                self._tasks.wake()
            case InjectBarrier():
                self._inject(message)
            case ContinueSources() | Drain() | AlignSource():
                self._tasks.on_order(message)
            case TakeProfile():
                self._profiler.take(message, self._built)
            case TraceChannel():
                self._tracer.trace(message, self._built, self._links)
            case SampleKeys():
                self._key_sampler.take(message, self._built)
            case OrderSleep() | RelayBackPressure() | EndTrees() | ReleaseBatch() | SetRate():
                self._signals.note()
                self._throttling.on_order(message)
            case Close():
                if self._pool is not None and not self._reported:  # a job that stops: its tasks have not ended
                    self._driver.send(ReportMetrics(metrics=self._metrics(self._pool)))
                self._over = True
            case Cancel():
                self._over = True
            case _:
                assert_never(message)

    def _inject(self, message: InjectBarrier) -> None:
        if message.folder is not None and self._upload is not None:
            self._upload.announce(message.checkpoint, message.folder)
        self._tasks.inject(message)

    def _start_tasks(self, message: StartTasks) -> None:
        self._started_at = message.started_at
        assert self._links is not None  # it has registered
        self._links.dial(message.addresses)
        self._throttling.start()
        self._tasks.begin(self._built)

    def _run_stage(self, vertices: Sequence[int]) -> None:
        """Build and start the tasks of a stage whose input is complete.

        The buffers of the previous stage are free again.
        """
        assert self._builder is not None  # it has registered
        stage = self._builder.build(vertices)
        self._built += stage
        self._measured.add(stage)
        self._threads.start(built.task for built in stage)
        for built in stage:
            for request in built.requests:
                self._network.post(request)
        self._tasks.begin(stage)

    def _task_opened(self) -> None:
        self._unopened -= 1
        if not self._unopened:
            self._driver.send(Ready())

    def _task_done(self, task: Task, error: HeadgateError | None) -> None:
        self._running -= 1
        if error is not None:
            self._fail(error)
            return
        built = self._tasks.of(task)
        for each in built.gates:
            each.gate.release()  # this tells the producers that all data were consumed
        if self._spec.config.is_batch:
            built.return_buffers()
        self._driver.send(
            TaskFinished(
                vertex=built.vertex.id,
                subtask=built.subtask,
                took_part=built.state.took_part,
                pending=built.state.pending,
                final=built.state.final,
            )
        )

    @property
    def _is_done(self) -> bool:
        """Whether all tasks have ended without an error, and consumers have taken all output of the tasks."""
        if self._failed or self._running or not self._started_at:
            return False
        return self._tasks.are_consumed

    @property
    def _awaits_consumers(self) -> bool:
        return bool(self._started_at) and not self._running and not self._reported and not self._failed

    def _report(self) -> None:
        """Report the end of all tasks once all segments are back.

        If segments are not back after a timeout, fail with an error that names their holders.
        """
        if self._return_by is None:
            self._return_by = time.monotonic() + RETURN_TIMEOUT
            for built in self._built:
                built.release()
        assert self._pool is not None  # tasks have run
        lent = self._pool.holders()
        if lent:
            if time.monotonic() >= self._return_by:
                who = f"all tasks of TaskManager {self._index} have ended, but network buffers are still lent: {lent}"
                self._fail(ExchangeError(who))
            return  # the caller calls again
        if self._upload is not None and not self._upload.is_idle:
            return
        self._reported = True
        self._flush_console()
        self._driver.send(AllFinished(metrics=self._metrics(self._pool)))

    def _fail(self, error: HeadgateError) -> None:
        """Report the first error to the driver. Other tasks continue to run until the driver decides what to do."""
        if self._failed or self._over:
            return
        self._failed = True
        self._flush_console()
        self._driver.send(Failed(error=to_wire(error.at(job=self._spec.job))))
        if not self._driver.is_connected:
            self._over = True
            self._unsent_error = error
            log.error("TaskManager %d cannot tell the driver: %s", self._index, error)

    def _driver_lost(self, reason: str) -> None:
        if not self._over:
            self._unsent_error = DriverLost(cut_off(self._spec.control_address, reason))
            self._over = True

    # --- to the driver

    def _flush_console(self) -> None:
        """Send the printed lines to the driver, before the next message."""
        if self._console is not None:
            self._console.flush()

    def _metrics(self, pool: NetworkBufferPool, *, is_last: bool = True) -> dict[str, Any]:
        assert self._links is not None  # they are there before the pool
        return self._measured.read(pool, self._links, is_last=is_last)

    # --- the end

    def _end(self) -> None:
        """Release everything, in this order: tasks, links, buffers, network thread, memory.

        Each of these uses the later ones. Raises StuckTasks if user functions did not return.
        """
        self._profiler.close()
        self._throttling.close()
        stuck = self._end_tasks()
        if self._upload is not None:
            self._upload.close()
        closed = threading.Event()
        if self._links is not None:
            self._network.post(self._links.close)
        self._network.post(closed.set)
        closed.wait(_NETWORK_TIMEOUT)
        for built in self._built:
            if built.task.name not in stuck:
                built.release()
        if self._builder is not None:
            self._builder.discard()
        functions = [*stuck.values(), *self._tasks.stuck_readers()]
        if functions:
            self._driver.send(Stuck(operators=functions))
        if self._console is not None:
            self._console.disconnect()
        self._driver.close()
        self._network.stop(_NETWORK_TIMEOUT)
        if self._pool is not None and not stuck:
            self._close_memory(self._pool)
        if functions:
            raise StuckTasks(functions)

    def _close_memory(self, pool: NetworkBufferPool) -> None:
        try:
            pool.close()
        except ExchangeError as error:  # a bug of Headgate, which must not hide how the job ended
            log.error("TaskManager %d: %s", self._index, error)

    def _end_tasks(self) -> dict[str, str]:
        """Cancel the tasks that still run, and wait for their end.

        Returns the tasks that did not end in time: task name to the operator whose function does not return.
        """
        for built in self._built:
            built.task.cancel()
        return self._threads.join()
