"""A job's checkpoints on the driver: what its coordinator decides is done here, with the storage, the sinks and the
TaskManagers.

Without `checkpoint_dir` there are savepoints alone, and one commit at the end of the job. All of it is on the job's
thread, but for `requests`; what may take long are errands of another one.

**In doubt.** Once metadata is being written it may be there at any moment: a checkpoint that is given up then may come
to be complete. It is known when its errand is done, which a restart waits for: what is stored is what the job goes on
from. A job that ends before leaves the files of its sinks as they are, so that another one can resume from either.
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
from headgate.errors import CheckpointError, HeadgateError, Superseded, printable
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
from headgate.runtime.checkpointing.driver_connectors import LEFT, DriverConnectors
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

#: How often to look whether another program has taken over the job, seconds.
OWNER_CHECK_INTERVAL: Final = 5.0


class Checkpoints:
    """`latest` is what the job would resume from, `next_id` the number of the next one, 0 without checkpoints. `run_id`
    ends with a hexadecimal number, which is the run's alone. `stopped` is called when the job is over though its tasks
    are not, `finished` when all is done after the end of its tasks, and `done`, on another thread, when `go_on` has
    something to see to."""

    def __init__(
        self,
        job: str,
        run_id: str,
        *,
        plan: ExecutionPlan,
        config: Config,
        ends: DriverConnectors,
        tell: Callable[[FromDriver], None],
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
        self._tell = tell
        self._stopped = stopped
        self._finished = finished
        self._background = BackgroundWorker(f"headgate-storing-{run}", done)
        #: Of checkpoints of which the metadata is being stored, or is to be.
        self._storing: dict[int, BackgroundCall] = {}
        self._runs = self._tasks_have_ended = False
        self._storage = None if config.checkpoint_dir is None else CheckpointStorage(config.checkpoint_dir, job)
        self._stored = StoredCheckpoints(job, run, self._storage, ends)
        self.resumption = Resumption(job, plan, config, self._storage, resume)
        self._coordinator: CheckpointCoordinator
        self.requests = Requests(job, plan.job, config, self._storage)
        self._attempt = 0
        self._next_check: float | None = 0.0
        #: When the coordinator's clock was 0, in seconds since the epoch.
        self._epoch = time.time() - time.monotonic()
        #: Keys of nodes that have something in a checkpoint; others may come and go between two programs.
        self._kept: set[str] = set()
        #: The path or URI of the last that this program took.
        self._last: str | None = None
        self.next_id = 0

    @property
    def history(self) -> list[CheckpointRecord]:
        """Any thread: the last ten, with their times since the epoch. The end of a job without checkpoints is none."""
        return [
            dataclasses.replace(record, triggered_at=self._epoch + record.triggered_at)
            for record in list(self._coordinator.history)
            if self._storage is not None or record.kind == "savepoint"
        ]

    # --- the life of the job

    def prepare(self) -> None:
        """Before the job starts, on the caller's thread. Raises CheckpointError for a folder that is of no use, and for
        a checkpoint that the job cannot resume from."""
        if self._storage is not None:
            self._storage.check()
        self.resumption.find()
        if self._storage is not None:
            warn_of_sources(self._job, self._plan.job, "restarts")

    def take_over(self, program: Program) -> None:
        """The job is sure to start: become the owner of its checkpoints and its results. Raises HeadgateError; then
        call `abort`."""
        claim = self._claim(program)
        self._connectors.refuse_repeats(self.latest)  # before the start is on record: a refused program changes nothing
        if self._storage is not None:
            self._storage.start(self.resumption.place or None)
            self.next_id = self._storage.next_id()
            self._storage.remove_incomplete(self.next_id - 1)  # a killed driver's, which may fill the disk
        self.next_id = max(self.next_id, 0 if self.latest is None else self.latest.id + 1)
        self._start_coordinator()
        self._connectors.begin(claim, self.latest)

    def _claim(self, program: Program) -> Claim:
        """Claim the checkpoints and the results, both with one epoch."""
        home = referenced = None
        while True:
            epoch = 1 + self._connectors.newest_owner()
            if self._storage is not None:
                before, epoch = self.latest, self._storage.claim(program, epoch, self.resumption.known_owner)
                self.resumption.find_again(self._storage)
                if self.latest is not before:  # another program, which started first, has completed it since
                    self._connectors.abort()
                    self._connectors.prepare(self.latest)
                home, referenced = self._storage.folder, self._storage.prepared()
            claim = Claim(
                program=program,
                epoch=epoch,
                check=self._stored.require_owner,
                home=home,
                referenced=referenced,
                resumed=0 if self.latest is None else self.latest.id,
                resumed_run="" if self.latest is None else self.latest.run,
            )
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
        """What the job would resume from."""
        return self.resumption.latest

    def fall_back(self) -> Future[Found | None]:
        """The attempt could not read `latest`: begin to look what another one may resume from. That is known once all
        is settled, see `Resumption.find_usable`."""
        answer: Future[Found | None] = Future()

        def look() -> None:
            try:
                answer.set_result(self.resumption.find_usable())
            except Exception as error:
                answer.set_exception(error)

        self._background.begin(look, ignore_result)
        return answer

    def start(self, attempt: int) -> None:
        """All tasks of the attempt run."""
        self._attempt = attempt
        self._runs, self._tasks_have_ended = True, False
        self._hear(Started(attempt))
        self.look()

    def look(self) -> None:
        """Something may have been asked for."""
        if self.requests.drains:
            self._tell(Drain())
        for request in self.requests.take():
            self._hear(Requested(request))

    def go_on(self) -> None:
        """With what follows from errands that are done."""
        self._background.look()

    def interrupted(self, error: Exception) -> None:
        """The attempt has failed. What is being stored or committed goes on."""
        self._runs = False
        self._run_remaining_callbacks()
        reason = "another program took over" if isinstance(error, Superseded) else f"the job failed: {error}"
        self._hear(Interrupted(reason))

    def settle(self, timeout: float) -> bool:
        """No attempt runs: wait until nothing is being stored or committed any more. Returns whether that is so."""
        is_settled = self._background.settle(timeout)
        self._run_remaining_callbacks()
        return is_settled

    def _run_remaining_callbacks(self) -> None:
        """What errands come to in a job that has failed is no reason to fail again: it is done again, or given up."""
        while True:
            try:
                return self._background.look()
            except Superseded:
                pass  # the job ends with it, and says so
            except HeadgateError as error:
                log.warning("job %r: %s", self._job, error)

    def close(self, error: HeadgateError | None, reason: str) -> None:
        """The job is over; `reason` is why nothing can be saved any more."""
        self._background.close()
        self.requests.close(self._last, error, reason)

    def rollback(self) -> BackgroundCall:
        """All is settled, and the job is to resume from `latest`: begin to take back what was written since."""
        self.next_id = self._coordinator.last + 1
        return self._background.begin(
            partial(self._stored.roll_back, *self.resumption.results, self._coordinator.last), ignore_result
        )

    def end_of_tasks(self) -> None:
        """All that they wrote has been reported; the last checkpoint may still be being stored or committed. Raises
        CheckpointError if there is none."""
        self._tasks_have_ended = True
        if self._coordinator.phase not in (Phase.STORING, Phase.COMMITTING, Phase.OVER):
            raise CheckpointError(f"job {self._job!r}: its last checkpoint is not complete")
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self._tasks_have_ended and self._coordinator.phase is Phase.OVER:
            self._background.begin(self._connectors.finish, self._on_finished)

    def _on_finished(self, error: Exception | None) -> None:
        raise_error(error)
        self._finished()

    def abort(self, known: str = "") -> list[str]:
        """The job has failed or was cancelled: leave what belongs to `latest`. Returns what could not be cleaned up,
        unless the job's error, `known`, says it."""
        in_doubt = [checkpoint for checkpoint, errand in self._storing.items() if not self._background.drop(errand)]
        if not in_doubt:
            return self._connectors.abort(*self.resumption.results, known)
        why = f"checkpoint {in_doubt[0]} was being stored when the job ended; {LEFT}"
        stays = "it may yet be complete, so what sinks have written stays as it is"
        return [f"{why}, and {stays}", *self._connectors.release()]

    # --- what tasks tell

    def acknowledged(self, said: AcknowledgeCheckpoint, part: Any) -> None:
        """A task's part is stored; `part` is what it reported of its alignment."""
        self._kept.update(said.nodes)
        task = TaskId(said.vertex, said.subtask)
        self._hear(
            Acknowledged(
                task=task,
                attempt=self._attempt,
                checkpoint=said.checkpoint,
                pending=said.pending,
                state=said.file,
                part=part,
            )
        )

    def declined(self, said: DeclineCheckpoint) -> None:
        """A task's part could not be stored."""
        task = TaskId(said.vertex, said.subtask)
        self._hear(Declined(task, self._attempt, said.checkpoint, said.pending, printable(said.reason)))

    def task_finished(self, said: TaskFinished) -> None:
        """A task has ended, and all that it sent has been worked on."""
        task = TaskId(said.vertex, said.subtask)
        self._hear(TaskEnded(task, self._attempt, said.took_part, said.final, said.pending))

    # --- by the clock

    @property
    def deadline(self) -> float | None:
        deadlines = (self._coordinator.deadline, self._next_check)
        return min((each for each in deadlines if each is not None), default=None)

    def on_time(self, now: float) -> None:
        self._hear(TimePassed())
        if self._next_check is not None and now >= self._next_check:
            self._next_check = None  # until this one is done, however slow the storage
            self._background.begin(self._stored.require_owner, self._on_checked)

    def _on_checked(self, error: Exception | None) -> None:
        """A program that was replaced ends soon, also between two checkpoints."""
        if self._storage is not None:
            self._next_check = time.monotonic() + OWNER_CHECK_INTERVAL
        if isinstance(error, Superseded):
            raise error

    # --- what the coordinator decides

    def _hear(self, event: Event) -> None:
        self._do(self._coordinator.handle(event, time.monotonic()))

    def _do(self, actions: Sequence[Action]) -> None:
        """Raises the error that the job cannot go on with."""
        for action in actions:
            match action:
                case TriggerCheckpoint(checkpoint, tasks, request):
                    folder = self._stored.savepoint(checkpoint, request) or self._stored.own_folder(checkpoint)
                    how = alignment(self._config) if request is None else (Alignment.ALIGNED, 0.0)
                    stops = request is not None and request.stops
                    self._tell(injection(checkpoint, *how, roots=tasks, folder=folder, stops=stops))
                case StoreMetadata():
                    self._complete(action)
                case Commit(complete):
                    self._commit(complete)
                case AbortCheckpoint():
                    self._abort(action)
                case Fail(error):
                    log.info("job %r: its checkpoint coordinator heard:\n%s", self._job, self._coordinator.trace)
                    raise error

    def _complete(self, complete: StoreMetadata) -> None:
        savepoint = self._stored.savepoint(complete.checkpoint, complete.request)
        if self._storage is None and savepoint is None:  # all tasks have ended
            self._last = None
            self._hear(Stored(complete.checkpoint))
            return
        metadata = self._metadata(complete, "checkpoint" if savepoint is None else "savepoint")
        work, then = partial(self._stored.store, metadata, savepoint), partial(self._on_stored, complete, metadata)
        self._storing[complete.checkpoint] = self._background.begin(work, then)

    def _on_stored(self, complete: StoreMetadata, metadata: CheckpointMetadata, error: Exception | None) -> None:
        del self._storing[complete.checkpoint]
        if isinstance(error, CheckpointError):
            actions = self._coordinator.handle(NotStored(complete.checkpoint, error.message), time.monotonic())
            if not actions:  # it was given up before
                self._discard(complete.checkpoint, complete.request)
            self._do(actions)
            return
        if error is not None:
            raise error
        self._last = self._stored.place(complete)
        self.resumption.go_to((self._stored.own_folder(complete.checkpoint) or self._last, metadata))
        actions = self._coordinator.handle(Stored(complete.checkpoint), time.monotonic())
        if not actions:
            log.warning("job %r: checkpoint %d is complete after all, too late to count; the job resumes from it "
                        "until there is another one: %s", self._job, complete.checkpoint, self._last)  # fmt: skip
        self._do(actions)

    def _commit(self, complete: StoreMetadata) -> None:
        if not self._runs:  # the program that resumes from it commits
            self._answer(complete)
            return
        checkpoint = 0 if self.latest is None else complete.checkpoint
        work = partial(self._stored.commit, complete.pending, checkpoint)
        self._background.begin(work, partial(self._on_committed, complete))

    def _on_committed(self, complete: StoreMetadata, error: Exception | None) -> None:
        """With an error the job resumes from it, and commits again."""
        self._answer(complete)
        raise_error(error)
        if not self._runs:
            return
        if self._storage is not None:
            self._background.begin(self._storage.retain, raise_error)
        if complete.request is not None and complete.request.stops and not all_finished(complete.parts):
            self._stopped()
        self._hear(Committed(complete.checkpoint))
        self._finish_if_over()

    def _answer(self, complete: StoreMetadata) -> None:
        if complete.request is not None:
            self.requests.done(complete.request, self._stored.place(complete))

    def _discard(self, checkpoint: int, request: Request | None) -> None:
        """Of a checkpoint of the job's own, what was written is removed with old ones. What is being stored may come to
        be complete, and then stays."""
        errand, savepoint = self._storing.get(checkpoint), self._stored.savepoint(checkpoint, request)
        if errand is not None:
            if not self._background.drop(errand):
                return
            del self._storing[checkpoint]
        if savepoint is not None:
            self._background.begin(partial(discard, savepoint), self._on_discarded)
        elif self._storage is not None:
            self._background.begin(partial(self._storage.remove_incomplete, checkpoint), raise_error)

    def _on_discarded(self, error: Exception | None) -> None:
        if error is not None:
            log.warning("job %r: of a savepoint that failed something is left: %s", self._job, error)

    def _abort(self, abort: AbortCheckpoint) -> None:
        self._discard(abort.checkpoint, abort.request)
        if abort.request is None:
            log.warning("job %r: checkpoint %d failed: %s", self._job, abort.checkpoint, abort.reason)
            return
        what = "the stop" if abort.request.stops else "savepoint"
        self.requests.failed(abort.request, f"{what} of job {self._job!r} failed: {abort.reason}")
        if abort.request.stops:
            self._tell(ContinueSources())

    def _metadata(self, complete: StoreMetadata, kind: Kind) -> CheckpointMetadata:
        job, prepared = self._plan.job, self._connectors.prepared()
        vertices = vertices_of(complete, job, self.resumption.key_groups)
        nodes = nodes_of(complete, job, self._kept.union(prepared))
        began = time.time() - complete.duration
        return CheckpointMetadata(
            id=complete.checkpoint, timestamp=began, duration=complete.duration, job=self._job,
            attempt=self._attempt, vertices=vertices, nodes=nodes, pending=complete.pending, prepared=prepared,
            kind=kind, exchanges=exchanges_of(complete, job), run=self._run_id,
        )  # fmt: skip
