"""`JobMaster`: one job on the driver, from its start through its attempts and checkpoints to its end.

Only the start runs on the caller's thread. All other work runs on the job's thread, which runs the attempts.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import assert_never

from headgate.config import Config
from headgate.errors import (
    CheckpointError,
    HeadgateError,
    InsufficientBuffers,
    JobCancelled,
    NotEnoughSlots,
    ResultsGone,
    SessionLost,
    SinkError,
    StateMemoryExceeded,
    StorageError,
    Superseded,
    TaskManagerLost,
    UnusableState,
)
from headgate.observe.topology import topology_of
from headgate.ownership import Program
from headgate.plan.execution import ExecutionPlan
from headgate.plan.network_memory import check_network_memory
from headgate.plan.stages import Stages
from headgate.protocol.handshake import Credentials
from headgate.records.events import Alignment
from headgate.runtime import printed_lines
from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
from headgate.runtime.checkpointing.checkpoints import Checkpoints
from headgate.runtime.checkpointing.driver_connectors import DriverConnectors
from headgate.runtime.checkpointing.guarantee import Guarantee, guarantee_of
from headgate.runtime.control_messages import (
    AcknowledgeCheckpoint,
    AnnounceBackPressure,
    DeclineCheckpoint,
    DeclineRequest,
    Delivered,
    DeliverRows,
    FromDriver,
    Part,
    Printed,
    ReportBatch,
    ReportCheckpointMetrics,
    ReportKeys,
    ReportMetrics,
    ReportProfile,
    ReportTrace,
    ReportTrees,
    ReportWatermark,
    RequestSleep,
    RunStage,
    TaskFinished,
    ToJob,
)
from headgate.runtime.deployment import Deployment
from headgate.runtime.master.attempt import Attempt, unexpected
from headgate.runtime.master.barrier_probes import BarrierProbes
from headgate.runtime.master.channel_traces import ChannelTraces
from headgate.runtime.master.hot_keys import HotKeys
from headgate.runtime.master.job_alignment import JobAlignment
from headgate.runtime.master.job_end import SETTLE_POLL, JobEnd
from headgate.runtime.master.job_metrics import Metrics, merge
from headgate.runtime.master.job_monitor import JobMonitor
from headgate.runtime.master.job_state import JobState, ended_with
from headgate.runtime.master.job_throttle import JobThrottle
from headgate.runtime.master.member import Member
from headgate.runtime.master.profiles import Profiles
from headgate.runtime.master.restart_delays import Restarts
from headgate.runtime.master.restart_log import RestartLog
from headgate.runtime.master.slow_functions import SlowFunctions
from headgate.runtime.master.task_requests import TaskRequests
from headgate.runtime.master.watched_job import WatchedJob
from headgate.web.job_pages import pages

log = logging.getLogger(__name__)

#: The most attempts in a row that may lose a TaskManager before all have registered. This limit is for a job that has
#: never run and whose restart strategy has no limit. If a package or the connection to the driver is missing, every
#: attempt fails in the same way.
_STARTS = 3


class JobMaster:
    """The master of one job, which runs its attempts.

    Once `ended` is set, nothing of the job runs any more, and `error` is the error that ended the job, or None.
    """

    def __init__(
        self,
        name: str,
        run: str,
        *,
        plan: ExecutionPlan,
        config: Config,
        deployment: Deployment,
        resume: str | None = None,
        allow_duplicates: bool = False,
    ) -> None:
        self._name = name
        self._run_id = run
        self._plan = plan
        self._config = config
        self._deployment = deployment
        self._connectors = DriverConnectors(plan.job, run, allow_duplicates)
        self._requests = TaskRequests()
        topology = topology_of(name, plan.job)
        self.profiles = Profiles(topology, plan.place, self._requests)
        self.traces = ChannelTraces(topology, plan.place, self._requests)
        hot_keys = HotKeys(plan.job, plan.place, self._requests)
        self.monitor = JobMonitor(name, plan.job, config, functions=SlowFunctions(self.profiles.ask), hot_keys=hot_keys)
        self._checkpoints = Checkpoints(
            name,
            run,
            plan=plan,
            config=config,
            ends=self._connectors,
            send=self._send,
            stopped=self._on_stopped,
            finished=self._on_finished,
            done=self._on_background_done,
            resume=resume,
        )
        self._restarts = Restarts(config.restarts)
        self._restart_log = RestartLog(name)
        #: The restarts in a row that found too few slots.
        self._slot_retries = Restarts(config.restarts)
        self._credentials = Credentials(os.urandom(16), 0, os.urandom(32), config.flow_control)
        self._probes = BarrierProbes(config)
        self._cancelled = threading.Event()
        self._is_stopped = False
        self.started_at: float | None = None
        self._failed_starts = 0
        self.restarts = 0
        self.duration_s = 0.0
        self.state = JobState.CREATED
        self.error: HeadgateError | None = None
        self.ended = threading.Event()
        self._attempt: Attempt
        self._throttle = JobThrottle(None, plan, self._order)
        self._alignment: JobAlignment
        self._before: Metrics | None = None
        self.watched = WatchedJob(run, name, self.monitor, self)
        self.web_url: str | None = None
        self.thread = threading.Thread(target=self._run, name=f"headgate-job-{run}", daemon=True)

    def _begin_attempt(self) -> None:
        self._stages = Stages(self._plan, batch=self._config.is_batch)
        self._throttle = JobThrottle(self._config.throttle, self._plan, self._order)
        self._alignment = JobAlignment(self._plan, self._send)
        self._attempt = Attempt(
            self,
            self._name,
            plan=self._plan,
            config=self._config,
            deployment=self._deployment,
            credentials=self._credentials,
            checkpoint=self._checkpoints.next_id,
            restore=self._checkpoints.latest,
        )

    # --- from any thread

    def start(self) -> None:
        """Reserve slots, prepare sources and sinks on the caller's thread, and launch the first attempt.

        Raises HeadgateError; in that case nothing is left behind.
        """
        try:
            check_network_memory(self._plan, self._config)
        except InsufficientBuffers:
            self._checkpoints.resumption.find()  # no memory helps if the checkpoint has fewer key groups than subtasks
            raise
        with self._reserved_slots():
            self._prepare()
            try:
                self._checkpoints.take_over(Program.this(self._run_id))
                self._begin_attempt()
                self.web_url = pages.add(self.watched, self._config)
                self._attempt.launch()
            except BaseException:  # an interrupt, too
                pages.remove(self.watched)
                self._checkpoints.abort()
                raise
        self.thread.start()

    def _prepare(self) -> None:
        if self._config.tls == "off":
            log.warning(
                "job %r: tls='off': its links are not encrypted. Anyone on the network between its machines can read "
                "and change rows and commands. Every batch is validated in full, which is slow",
                self._name,
            )
        try:
            self._checkpoints.prepare()
        except SinkError as error:
            error.message += self._checkpoints.resumption.hint
            raise

    def _reserved_slots(self) -> AbstractContextManager[None]:
        return self._deployment.reserve(self._plan.taskmanagers, self._config, self._connectors.slots, self._cancelled)

    def cancel(self) -> None:
        self._cancelled.set()
        self._attempt.end(self._as_cancelled())

    def savepoint(self, uri: str | os.PathLike[str]) -> Future[str]:
        """Request a savepoint. The answer is its URI. Raises CheckpointError for a folder that cannot be used."""
        answer = self._checkpoints.requests.savepoint(uri)
        self._attempt.post(self._checkpoints.poll_requests)
        return answer

    def stop(self, drain: bool, uri: str | os.PathLike[str] | None) -> Future[str | None]:
        """Stop the job. When the job has ended, the answer is the path or URI of its last checkpoint, if any.

        Raises CheckpointError if the job cannot take a last checkpoint. Raises ConfigError if the job is already being
        stopped in another way.
        """
        answer = self._checkpoints.requests.stop(drain, uri)
        self._attempt.post(self._checkpoints.poll_requests)
        return answer

    def _as_cancelled(self) -> JobCancelled:
        return JobCancelled(f"job {self._name!r} was cancelled")

    def inject_barrier(self, alignment: Alignment = Alignment.ALIGNED, timeout: float = 0.0) -> int:
        """Send a checkpoint's barrier from every source, and return the checkpoint's number.

        `checkpoint_parts` shows which tasks the barrier has passed. Nothing is stored. `timeout` is the timeout of
        Alignment.TIMEOUT, in seconds. Do not use the method in a job of which you take savepoints. Raises ConfigError
        if the job takes checkpoints of its own, or for an overtaking alignment without flow_control="credit".
        """
        return self._probes.inject(alignment, timeout, lambda barrier: self._attempt.post(lambda: self._send(barrier)))

    def checkpoint_parts(self, checkpoint: int) -> dict[str, Part]:
        """Return the tasks' reports on one of the last ten checkpoints, by task; see `TaskBarriers`."""
        return self._probes.parts(checkpoint)

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return the last ten checkpoints, in the order in which they ended."""
        return self._checkpoints.history

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for rows after a failure, see `JobHandle.guarantee`."""
        return guarantee_of(self._plan.job, self._config)

    def metrics(self) -> Metrics:
        """Return the sum of the last reports of all TaskManagers.

        While a job restarts, this is the sum of the previous attempt, until all TaskManagers have reported.
        """
        attempt = self._attempt
        if self._before is not None and not attempt.has_reported:
            return self._before
        return merge(attempt.reports()) | {"throttle_batches": self._throttle.batches}

    # --- what an attempt asks

    def start_tasks(self) -> float:
        if self.started_at is None:
            self.started_at = time.time()
        self.state = JobState.RUNNING
        pages.serve()
        self._checkpoints.start(self._attempt.credentials.attempt)
        self._requests.begin(self._attempt)
        self._throttle.start()
        return self.started_at

    def on_message(self, member: Member, message: ToJob, payload: bytes) -> None:
        match message:
            case ReportMetrics():
                self.monitor.on_report(self._attempt, self.metrics)
            case ReportCheckpointMetrics():
                self._probes.note(message.part)
                self._throttle.on_message(member.index, message)
            case AcknowledgeCheckpoint():
                part = self._probes.parts(message.checkpoint).get(message.task)
                self._checkpoints.acknowledged(message, {**(part or {}), "async_s": message.async_s})
            case DeclineCheckpoint():
                self._checkpoints.declined(message)
            case DeliverRows():
                self._connectors.deliver(message.node, payload, message.checkpoint)
                if member.link is not None:
                    member.link.send(Delivered(size=message.size))
            case ReportProfile() | ReportTrace() | ReportKeys() | DeclineRequest():
                self._requests.on_message(message)
            case RequestSleep() | AnnounceBackPressure() | ReportTrees() | ReportBatch():
                self._throttle.on_message(member.index, message)
            case ReportWatermark():
                self._alignment.on_message(message)
            case Printed():
                printed_lines.show(message)
            case TaskFinished():
                self._checkpoints.task_finished(message)
                self._throttle.on_message(member.index, message)
                if vertices := self._stages.finished(message.vertex):
                    self._send(RunStage(vertices=vertices))
            case _:
                assert_never(message)

    def _on_stopped(self) -> None:
        """End the attempt, because the last checkpoint of a job that stops is committed. The tasks wait for this."""
        self._is_stopped = True
        self._on_finished()

    def on_end_of_tasks(self) -> None:
        self._checkpoints.end_of_tasks()

    def _on_finished(self) -> None:
        """End the attempt, because all tasks have ended and everything is committed."""
        self.duration_s = time.time() - (self.started_at or time.time())
        self._attempt.over()

    def _on_background_done(self) -> None:
        """Run the callback of a background call on the job's thread. Any thread may call this."""
        self._attempt.post(self._checkpoints.run_callbacks)

    def deadline(self) -> float | None:
        due = self._checkpoints.deadline, self._throttle.deadline
        return min((at for at in due if at is not None), default=None)

    def on_time(self, now: float) -> None:
        self._checkpoints.on_time(now)
        self._throttle.on_time(now)

    def _send(self, message: FromDriver) -> None:
        self._attempt.send(message)

    def _order(self, message: FromDriver, to: Collection[int] | None) -> None:
        self._attempt.send(message, to)

    # --- from the first attempt to the end, on the job's thread

    def _run(self) -> None:
        try:
            self._run_attempt()
            while self._attempt.error is not None and self._await_restart(self._attempt):
                self._restart()
            self._end(self._attempt.error)
        except Exception as error:  # a bug of Headgate must not look like the end of a job
            log.exception("error in the JobMaster")
            self.error = unexpected(error).at(job=self._name)
            self.state = JobState.FAILED
        finally:
            why = "" if self.error is None else f": {self.error}"
            reason = f"job {self._name!r} is {self.state.value}: no savepoint can be taken{why}"
            self._checkpoints.close(self.error, reason)
            self._requests.close(f"job {self._name!r} is {self.state.value}{why}")
            try:
                self.watched.end()
                pages.ended()
            finally:
                self.ended.set()

    def _run_attempt(self) -> None:
        self._attempt.run()
        error = self._attempt.error
        self._requests.interrupted(f"its job failed meanwhile ({error})" if error else "its job has ended meanwhile")
        if error is not None:
            self._checkpoints.interrupted(error)

    def _await_restart(self, failed: Attempt) -> bool:
        """Wait as long as the restart strategy says. Returns whether the job is restarted.

        Some failures would occur again: the job cannot read its checkpoint, finished files or its Spark session are
        missing, or the job holds more state than its limit. If a user's function did not return, its effect on another
        attempt is unknown. In these cases the job is not restarted.

        Restarts that found too few slots are counted apart from other restarts. The strategy's limit applies to such
        restarts in a row.
        """
        is_lost = isinstance(failed.error, TaskManagerLost) and not failed.has_registered
        if is_lost and not self._restarts.has_limit:
            self._failed_starts += 1
        ran = self.state is JobState.RUNNING
        hopeless = (StateMemoryExceeded, ResultsGone, SessionLost, Superseded, UnusableState)
        is_hopeless = failed.left_running or isinstance(failed.error, hopeless)
        if is_hopeless or (self.started_at is None and not self._may_start(failed)):
            return False
        if self._cancelled.is_set() or isinstance(failed.error, JobCancelled):
            return False
        if isinstance(failed.error, CheckpointError) and not ran and not self._fall_back(failed):
            return False
        in_vain = isinstance(failed.error, NotEnoughSlots) and not ran
        delay = (self._slot_retries if in_vain else self._restarts).note_failure(time.monotonic())
        if delay is None:
            return False
        self.state = JobState.RESTARTING
        self._restart_log.restarts(self._checkpoints.latest, failed.error)
        if self._cancelled.wait(delay):
            failed.error = self._as_cancelled()
        return not self._cancelled.is_set()

    def _fall_back(self, failed: Attempt) -> bool:
        """Choose the newest checkpoint that can be read, and resume from it. Returns whether there is one.

        The storage may take long to answer. A cancel ends the wait.
        """
        answer = self._checkpoints.fall_back()
        try:
            self._settle()
        except JobCancelled as error:
            failed.error = error
            return False
        usable = answer.result()
        if usable is not None:
            self._checkpoints.resumption.use(usable)
        return usable is not None

    def _may_start(self, failed: Attempt) -> bool:
        """Return whether a job that has never run may be started again.

        The next attempt may succeed after a lost TaskManager, storage that does not answer, or too few slots. Any other
        error (of a function, a file or an option) would occur again.
        """
        is_lost = isinstance(failed.error, TaskManagerLost)
        if is_lost and not failed.has_registered and not self._restarts.has_limit:
            return self._failed_starts < _STARTS
        return is_lost or isinstance(failed.error, (StorageError, NotEnoughSlots))

    def _restart(self) -> None:
        self._credentials = dataclasses.replace(self._credentials, attempt=self._credentials.attempt + 1)
        try:
            self._roll_back()
            if self._checkpoints.requests.drains:
                self._restart_log.drains(self._checkpoints.latest)
            self._before = self.metrics()
            self._begin_attempt()
            with self._reserved_slots():
                self._slot_retries = Restarts(self._config.restarts)
                self.restarts += 1
                if self._cancelled.is_set():
                    raise self._as_cancelled()
                self._attempt.launch()
        except HeadgateError as error:
            self._attempt.error = error
            return
        if self._cancelled.is_set():  # the cancel may have gone to the previous attempt
            self.cancel()
        self._run_attempt()

    def _roll_back(self) -> None:
        """Wait until the checkpoint to resume from is stored, and roll back the sinks to this checkpoint.

        Raises the error of a sink, or JobCancelled.
        """
        self._settle()
        rollback = self._checkpoints.rollback()
        self._settle()
        if rollback.error is not None:
            raise rollback.error

    def _settle(self) -> None:
        while not self._checkpoints.settle(SETTLE_POLL):
            if self._cancelled.is_set():
                raise self._as_cancelled()

    def _end(self, error: HeadgateError | None) -> None:
        self.monitor.on_end(self._attempt, self.metrics)
        end = JobEnd(self._checkpoints, self._connectors, self._cancelled)
        problems = end.settle_and_clean_up(self._run_id, error, is_stopped=self._is_stopped)
        error = end.successor or error
        if error is not None:
            problems += self.monitor.save_failure(error, self._run_id)
            between = "\n" if "\n" in error.message else " "  # a traceback ends with the text of the user's error
            error.message += "".join(f"{between}({problem})" for problem in problems)
        else:
            for problem in problems:
                log.warning("job %r: %s", self._name, problem)
        self.error = error
        self.state = ended_with(error)
