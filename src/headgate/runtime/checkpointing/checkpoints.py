"""Carries out the actions of the checkpoint coordinator, with the storage, the sinks and the TaskManagers.

Without `checkpoint_dir` a job takes only savepoints, and commits once, at its end. Everything runs on the job's thread,
except for `requests`. Calls that may take long run on a background thread.

**Checkpoints in doubt.** A checkpoint may be given up while its metadata is being written. This checkpoint may still
become complete. The outcome is known when the call that writes the metadata is done. A restart waits for that call, and
the job resumes from what is stored. A job that ends before the call is done leaves the files of its sinks as they are.
Another job can then resume from this checkpoint, or from the one before.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from headgate.config import Config
from headgate.connectors.connector import Claim
from headgate.errors import CheckpointError, HeadgateError, SinkError, Superseded, printable
from headgate.ownership import Program
from headgate.plan.execution import ExecutionPlan
from headgate.records.events import Alignment
from headgate.runtime.background_worker import BackgroundCall, BackgroundWorker, ignore_result, raise_error
from headgate.runtime.checkpointing.checkpoint_contents import exchanges_of, nodes_of, vertices_of
from headgate.runtime.checkpointing.checkpoint_coordinator import (
    CheckpointCoordinator,
    CheckpointOptions,
    Phase,
    all_finished,
)
from headgate.runtime.checkpointing.checkpoint_events import (
    AbortCheckpoint,
    Acknowledged,
    Action,
    Commit,
    Committed,
    Declined,
    Event,
    Fail,
    Interrupted,
    NotStored,
    Request,
    Requested,
    Started,
    Stored,
    StoreMetadata,
    TaskEnded,
    TaskId,
    TimePassed,
    TriggerCheckpoint,
)
from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
from headgate.runtime.checkpointing.driver_connectors import THREAD_LEFT_RUNNING, DriverConnectors
from headgate.runtime.checkpointing.guarantee import warn_of_sources
from headgate.runtime.checkpointing.injection import alignment, injection
from headgate.runtime.checkpointing.requests import Requests
from headgate.runtime.checkpointing.resume import Found
from headgate.runtime.checkpointing.resumption import Resumption, require_numbers
from headgate.runtime.checkpointing.stored_checkpoints import StoredCheckpoints
from headgate.runtime.control_messages import (
    AcknowledgeCheckpoint,
    ContinueSources,
    DeclineCheckpoint,
    Drain,
    FromDriver,
    TaskFinished,
)
from headgate.state.checkpoint_metadata import CheckpointMetadata, Kind
from headgate.state.checkpoint_storage import CheckpointStorage, discard

log = logging.getLogger(__name__)

#: Seconds between two checks whether another program has taken over the job.
OWNER_CHECK_INTERVAL: Final = 5.0


class Checkpoints:
    """The checkpoints of one job.

    `latest` is the checkpoint that the job would resume from. `next_id` is the number of an attempt's first checkpoint,
    or 0 without checkpoints. `run_id` ends with a hexadecimal number that is unique to the run.

    The object calls `stopped` when the checkpoint of a stop is committed: the job is over, although its tasks still
    run. It calls `finished` when the tasks have ended and the sinks have finished. The background thread calls `done`
    when `run_callbacks` has callbacks to run.
    """

    def __init__(
        self,
        job: str,
        run_id: str,
        *,
        plan: ExecutionPlan,
        config: Config,
        ends: DriverConnectors,
        send: Callable[[FromDriver], None],
        stopped: Callable[[], None],
        finished: Callable[[], None],
        done: Callable[[], None],
        resume: str | None,
    ) -> None:
        self._job = job
        self._run_id = run_id
        self._run = run = run_id.rpartition("-")[2]
        self._plan = plan
        self._config = config
        self._connectors = ends
        self._send = send
        self._stopped = stopped
        self._finished = finished
        self._background = BackgroundWorker(f"headgate-storing-{run}", done)
        #: The calls that store metadata, waiting or under way, by checkpoint.
        self._storing: dict[int, BackgroundCall] = {}
        self._runs = self._tasks_have_ended = False
        self._storage = None if config.checkpoint_dir is None else CheckpointStorage(config.checkpoint_dir, job)
        self._stored = StoredCheckpoints(job, run, self._storage, ends)
        self.resumption = Resumption(job, plan, config, self._storage, resume)
        self._coordinator: CheckpointCoordinator
        self.requests = Requests(job, plan.job, config, self._storage)
        self._attempt = 0
        self._failure: Exception | None = None  # of the last attempt
        #: False from the claim to the recorded start: a newer owner may need what this one would remove.
        self._may_clean = True
        #: The checkpoint for which sources and sinks are prepared.
        self._prepared_for: CheckpointMetadata | None = None
        self._next_check: float | None = 0.0
        #: The time at which the coordinator's clock was 0, in seconds since the epoch.
        self._epoch = time.time() - time.monotonic()
        #: Keys of nodes that have state in a checkpoint. Other nodes may be added or removed between two programs.
        self._nodes_with_state: set[str] = set()
        #: The path or URI of the last checkpoint that this program took.
        self._last: str | None = None
        self.next_id = 0

    @property
    def history(self) -> list[CheckpointRecord]:
        """The last ten checkpoints, with times in seconds since the epoch. Any thread may read them.

        The commit at the end of a job without checkpoints is not among them.
        """
        return [
            dataclasses.replace(record, triggered_at=self._epoch + record.triggered_at)
            for record in list(self._coordinator.history)
            if self._storage is not None or record.kind == "savepoint"
        ]

    # --- the life of the job

    def prepare(self) -> None:
        """Find the checkpoint to resume from, and prepare sources and sinks, on the caller's thread. Raises
        CheckpointError for an unusable folder or checkpoint, and the errors of sources and sinks."""
        if self._storage is not None:
            self._storage.check()
        self.resumption.find()
        while self._is_outrun(self._prepare_connectors):
            pass
        if self._storage is not None:
            warn_of_sources(self._job, self._plan.job, "restarts")

    def _is_outrun(self, ask_sinks: Callable[[], None]) -> bool:
        """Call `ask_sinks`. If it raises an error, look for a newer checkpoint that another program has completed. If
        there is one, it is `latest` now, and the result is True. If there is none, raise the error."""
        try:
            ask_sinks()
        except (CheckpointError, SinkError):
            if not self.resumption.find_newer():
                raise
            return True
        return False

    def _prepare_connectors(self) -> None:
        self._prepared_for = self.latest
        self._connectors.prepare(self.latest)

    def take_over(self, program: Program) -> None:
        """Make this program the owner of the job's checkpoints and results, just before the job starts. Raises
        HeadgateError; after an error the caller must call `abort`."""
        claim = self._claim(program)
        while self._is_outrun(lambda: self._connectors.refuse_repeats(self.latest)):
            claim = self._claim(program)
        if self._storage is not None:
            self._storage.start(self.resumption.place or None, self._connectors.replaces)
            # Checkpoints that another program completes after `start` do not count, so read the checkpoints only now.
            claim = dataclasses.replace(claim, referenced=self._storage.prepared())
            self.next_id = self._storage.next_id()
            self._storage.remove_incomplete(self.next_id - 1)  # left by a killed driver; they may fill the disk
        self._may_clean = True  # a program that claims the job from now on sees what this one resumes from
        self.next_id = max(self.next_id, 0 if self.latest is None else self.latest.id + 1)
        self._start_coordinator()
        self._connectors.begin(claim, self.latest)

    def _claim(self, program: Program) -> Claim:
        """Claim, with one epoch, the job's checkpoints and its results."""
        while True:
            epoch = 1 + self._connectors.newest_owner()
            if self._storage is not None:
                epoch = self._storage.claim(program, epoch, self.resumption.known_owner)
                self.resumption.find_again(self._storage)
                if self.latest is not self._prepared_for:
                    self.abort()  # another program, which started first, has completed a checkpoint since
                    self._prepare_connectors()
            claim = Claim(
                program=program,
                epoch=epoch,
                check=self._stored.require_owner,
                home=None if self._storage is None else self._storage.folder,
                resumed=0 if self.latest is None else self.latest.id,
                resumed_run="" if self.latest is None else self.latest.run,
            )
            self._may_clean = False
            if self._connectors.claim(claim):
                return claim

    def _start_coordinator(self) -> None:
        require_numbers(self.next_id)
        options = CheckpointOptions(
            math.inf if self._storage is None else self._config.checkpoint_interval,
            self._config.checkpoint_min_pause,
            self._config.checkpoint_timeout,
            self._config.tolerable_failed_checkpoints,
        )
        self._coordinator = CheckpointCoordinator(self._plan, options, max(1, self.next_id))

    @property
    def latest(self) -> CheckpointMetadata | None:
        """The checkpoint that the job would resume from, or None for a start from the beginning."""
        return self.resumption.latest

    def fall_back(self) -> Future[Found | None]:
        """Start to look for a checkpoint to resume from, because the attempt could not read `latest`. The search begins
        when all earlier background calls are done. The future's result is that of `Resumption.find_usable`."""
        return self._background.ask(self.resumption.find_usable)

    def require_owner(self) -> None:
        """Read the storage, and raise Superseded if another program has taken over the job."""
        self._stored.require_owner()

    def start(self, attempt: int) -> None:
        """Start the coordinator. The job calls this when all tasks of the attempt run."""
        self._attempt = attempt
        self._runs, self._tasks_have_ended, self._failure = True, False, None
        self._handle(Started(attempt))
        self.poll_requests()

    def poll_requests(self) -> None:
        """Handle the new requests."""
        if self.requests.drains:
            self._send(Drain())
        for request in self.requests.take():
            self._handle(Requested(request))

    def run_callbacks(self) -> None:
        """Run the callbacks of background calls that are done."""
        self._background.run_callbacks()

    def interrupted(self, error: Exception) -> None:
        """Record that the attempt has failed. Storing and committing continue."""
        self._runs, self._failure = False, error
        self._run_remaining_callbacks()
        reason = "another program took over" if isinstance(error, Superseded) else f"the job failed: {error}"
        self._handle(Interrupted(reason))

    def settle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until nothing is being stored or committed any more. No attempt may run.

        Returns whether nothing is being stored or committed.
        """
        is_settled = self._background.wait_until_idle(timeout)
        self._run_remaining_callbacks()
        return is_settled

    def _run_remaining_callbacks(self) -> None:
        """Run the remaining callbacks of an attempt that has failed. Their errors do not fail the job again."""
        while True:
            try:
                return self._background.run_callbacks()
            except Superseded:
                pass  # the job ends with this error, and reports it
            except HeadgateError as error:
                log.warning("job %r: %s", self._job, error)

    def close(self, error: HeadgateError | None, reason: str) -> None:
        """Answer all requests at the end: savepoints with `reason`, a stop with `error` or else the last checkpoint."""
        self._background.close()
        self.requests.close(self._last, error, reason)

    def rollback(self) -> BackgroundCall:
        """Start to remove the results that sinks wrote after `latest`. Call `settle` first."""
        self.next_id = self._coordinator.last + 1
        return self._background.submit(
            partial(self._stored.roll_back, *self.resumption.results, self._coordinator.last), ignore_result
        )

    def end_of_tasks(self) -> None:
        """Record that all tasks have ended and reported what they wrote.

        The last checkpoint may not be stored or committed yet, or may wait to be tried again. Raises CheckpointError if
        there is no last checkpoint.
        """
        self._tasks_have_ended = True
        is_there = self._coordinator.phase in (Phase.STORING, Phase.COMMITTING, Phase.OVER)
        if not is_there and not self._coordinator.retries_end:
            raise CheckpointError(f"job {self._job!r}: its last checkpoint is not complete")
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._tasks_have_ended and self._coordinator.phase is Phase.OVER:
            self._background.submit(self._connectors.finish, self._on_finished)

    def _on_finished(self, error: Exception | None) -> None:
        raise_error(error)
        self._finished()

    def abort(self, known: str = "") -> list[str]:
        """Remove results that do not belong to `latest`, because the job has failed or was cancelled.

        Returns messages about what could not be cleaned up. The messages do not repeat `known`, the job's error.
        """
        if not self._may_clean:
            return self._connectors.release()
        in_doubt = [checkpoint for checkpoint, call in self._storing.items() if not self._background.cancel(call)]
        if not in_doubt:
            return self._connectors.abort(*self.resumption.results, known)
        why = f"checkpoint {in_doubt[0]} was being stored when the job ended; {THREAD_LEFT_RUNNING}"
        stays = "the checkpoint may still become complete, so what sinks have written stays as it is"
        return [f"{why}, and {stays}", *self._connectors.release()]

    # --- reports of tasks

    def acknowledged(self, message: AcknowledgeCheckpoint, part: Any) -> None:
        """Record that a task's part is stored. `part` is the task's report on its alignment."""
        self._nodes_with_state.update(message.nodes)
        task = TaskId(message.vertex, message.subtask)
        self._handle(
            Acknowledged(
                task=task,
                attempt=self._attempt,
                checkpoint=message.checkpoint,
                pending=message.pending,
                state=message.file,
                part=part,
            )
        )

    def declined(self, message: DeclineCheckpoint) -> None:
        """Record that a task's part could not be stored."""
        task = TaskId(message.vertex, message.subtask)
        self._handle(Declined(task, self._attempt, message.checkpoint, message.pending, printable(message.reason)))

    def task_finished(self, message: TaskFinished) -> None:
        """Record that a task has ended, and that its consumers have processed all that it sent."""
        task = TaskId(message.vertex, message.subtask)
        self._handle(TaskEnded(task, self._attempt, message.took_part, message.final, message.pending))

    # --- by the clock

    @property
    def deadline(self) -> float | None:
        deadlines = (self._coordinator.deadline, self._next_check)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_time(self, now: float) -> None:
        self._handle(TimePassed())
        if self._next_check is not None and now >= self._next_check:
            self._next_check = None  # no second check starts before this one is done, however slow the storage is
            self._background.submit(self._stored.require_owner, self._on_checked)

    def _on_checked(self, error: Exception | None) -> None:
        """End the job with the error of the check if another program has replaced this one."""
        if self._storage is not None:
            self._next_check = time.monotonic() + OWNER_CHECK_INTERVAL
        if isinstance(error, Superseded):
            raise error

    # --- what the coordinator decides

    def _handle(self, event: Event) -> None:
        self._do(self._coordinator.handle(event, time.monotonic()))

    def _do(self, actions: Sequence[Action]) -> None:
        """Carry out what the coordinator decided. Raises the error that ends the attempt."""
        for action in actions:
            match action:
                case TriggerCheckpoint(checkpoint, tasks, request):
                    folder = self._stored.savepoint(checkpoint, request) or self._stored.own_folder(checkpoint)
                    how = alignment(self._config) if request is None else (Alignment.ALIGNED, 0.0)
                    stops = request is not None and request.stops
                    self._send(injection(checkpoint, *how, roots=tasks, folder=folder, stops=stops))
                case StoreMetadata():
                    self._complete(action)
                case Commit(complete):
                    self._commit(complete)
                case AbortCheckpoint():
                    self._abort(action)
                case Fail(error):
                    log.warning(
                        "job %r: the last events of its checkpoint coordinator:\n%s", self._job, self._coordinator.trace
                    )
                    raise error

    def _complete(self, complete: StoreMetadata) -> None:
        savepoint = self._stored.savepoint(complete.checkpoint, complete.request)
        if self._storage is None and savepoint is None:  # all tasks have ended: there is only a commit
            self._last = None
            self._handle(Stored(complete.checkpoint))
            return
        metadata = self._metadata(complete, "checkpoint" if savepoint is None else "savepoint")
        work = partial(self._stored.store, metadata, savepoint)
        self._storing[complete.checkpoint] = self._background.submit(work, partial(self._on_stored, complete, metadata))

    def _on_stored(self, complete: StoreMetadata, metadata: CheckpointMetadata, error: Exception | None) -> None:
        del self._storing[complete.checkpoint]
        if isinstance(error, CheckpointError):
            actions = self._coordinator.handle(NotStored(complete.checkpoint, error.message), time.monotonic())
            if not actions:  # the checkpoint was given up before
                self._discard(complete.checkpoint, complete.request)
            self._do(actions)
            return
        if error is not None:
            raise error
        self._last = self._stored.place(complete)
        self.resumption.use((self._stored.own_folder(complete.checkpoint) or self._last, metadata))
        actions = self._coordinator.handle(Stored(complete.checkpoint), time.monotonic())
        if not actions:
            log.warning("job %r: checkpoint %d is complete, but too late to count; the job resumes from it "
                        "until there is another one: %s", self._job, complete.checkpoint, self._last)  # fmt: skip
        self._do(actions)

    def _commit(self, complete: StoreMetadata) -> None:
        if not self._runs:  # the attempt that resumes from the checkpoint commits
            self._answer(complete)
            return
        checkpoint = 0 if self.latest is None else complete.checkpoint
        work = partial(self._stored.commit, complete.pending, checkpoint)
        self._background.submit(work, partial(self._on_committed, complete))

    def _on_committed(self, complete: StoreMetadata, error: Exception | None) -> None:
        """Record that sinks have committed. After an error the job resumes from the checkpoint, and commits again."""
        self._answer(complete)
        raise_error(error)
        if not self._runs:
            return
        if self._storage is not None:
            self._background.submit(self._storage.retain, raise_error)
        if complete.request is not None and complete.request.stops and not all_finished(complete.parts):
            self._stopped()
        self._handle(Committed(complete.checkpoint))
        self._finish_if_over()

    def _answer(self, complete: StoreMetadata) -> None:
        if complete.request is not None:
            self.requests.done(complete.request, self._stored.place(complete))

    def _discard(self, checkpoint: int, request: Request | None) -> None:
        """Remove the files of a failed checkpoint.

        If the metadata is being written, the checkpoint may become complete, and its files stay. For one of the job's
        own checkpoints, this removes all incomplete checkpoints up to it.
        """
        call, savepoint = self._storing.get(checkpoint), self._stored.savepoint(checkpoint, request)
        if call is not None:
            if not self._background.cancel(call):
                return
            del self._storing[checkpoint]
        if savepoint is not None:
            self._background.submit(partial(discard, savepoint), self._on_discarded)
        elif self._storage is not None:
            self._background.submit(partial(self._storage.remove_incomplete, checkpoint), raise_error)

    def _on_discarded(self, error: Exception | None) -> None:
        if error is not None:
            log.warning("job %r: files of a failed savepoint could not be removed: %s", self._job, error)

    def _abort(self, abort: AbortCheckpoint) -> None:
        self._discard(abort.checkpoint, abort.request)
        if abort.request is None:
            log.warning("job %r: checkpoint %d failed: %s", self._job, abort.checkpoint, abort.reason)
            return
        what = "the stop" if abort.request.stops else "savepoint"
        self.requests.failed(abort.request, f"{what} of job {self._job!r} failed: {abort.reason}", self._failure)
        if abort.request.stops:
            self._send(ContinueSources())

    def _metadata(self, complete: StoreMetadata, kind: Kind) -> CheckpointMetadata:
        job, prepared = self._plan.job, self._connectors.prepared()
        vertices = vertices_of(complete, job, self.resumption.key_groups)
        nodes = nodes_of(complete, job, self._nodes_with_state.union(prepared))
        began = time.time() - complete.duration
        return CheckpointMetadata(
            id=complete.checkpoint, timestamp=began, duration=complete.duration, job=self._job,
            attempt=self._attempt, vertices=vertices, nodes=nodes, pending=self._connectors.results(complete.pending),
            prepared=prepared, kind=kind, exchanges=exchanges_of(complete, job), run=self._run_id,
        )  # fmt: skip
