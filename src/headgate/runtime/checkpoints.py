"""A job's checkpoints on the driver: what its coordinator decides is done here, with the storage, the sinks and the
TaskManagers.

Without `checkpoint_dir` there are savepoints alone, and one commit at the end of the job. All of it is on the job's
thread, but for `savepoint` and `stop`.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from headgate.config import Config
from headgate.errors import CheckpointError, HeadgateError, StorageError
from headgate.filesystems import absolute
from headgate.plan.execution import ExecutionPlan
from headgate.plan.node_keys import check_fits, describe, describe_exchange, node_key, vertex_key
from headgate.records.events import Alignment
from headgate.records.hashing import default_max_parallelism
from headgate.runtime.checkpoint_coordinator import (
    Abort,
    Action,
    CheckpointCoordinator,
    CheckpointOptions,
    CheckpointRecord,
    Complete,
    Fail,
    Request,
    State,
    Task,
    Trigger,
    all_finished,
)
from headgate.runtime.ends import Ends
from headgate.runtime.requests import Requests
from headgate.state.checkpoint_metadata import (
    LAST_ID,
    CheckpointMetadata,
    ExchangeDescription,
    Finished,
    Kind,
    StateFile,
    VertexState,
)
from headgate.state.checkpoint_storage import (
    CheckpointStorage,
    SavepointStorage,
    load_checkpoint,
    verify_checkpoint,
)
from headgate.transport.control_link import Message

log = logging.getLogger(__name__)

#: Of the job's own checkpoints the newest that can be used.
LATEST: Final = "latest"
#: The same, or a fresh start where there is none yet.
LATEST_IF_ANY: Final = "latest-if-any"
_NONE_IN_BATCH: Final = (
    "there are no checkpoints and savepoints with execution_mode='batch', where an operator begins when those before "
    "it have ended"
)


class Checkpoints:
    """`latest` is what the job would go on from, `next_id` the number of the next one, 0 without checkpoints. `run` is
    hexadecimal, and the job's alone."""

    def __init__(
        self,
        job: str,
        run: str,
        plan: ExecutionPlan,
        config: Config,
        ends: Ends,
        tell: Callable[[Message], None],
        stopped: Callable[[], None],
        resume: str | None,
    ) -> None:
        self._job = job
        self._run = run
        self._plan = plan
        self._config = config
        self._ends = ends
        self._tell = tell
        self._stopped = stopped
        self._resume = resume
        self._storage = None if config.checkpoint_dir is None else CheckpointStorage(config.checkpoint_dir, job)
        self._coordinator: CheckpointCoordinator
        self._requests = Requests()
        self._attempt = 0
        #: When the coordinator's clock was 0, in seconds since the epoch.
        self._epoch = time.time() - time.monotonic()
        #: Keys of nodes that have something in a checkpoint; others may come and go between two programs.
        self._kept: set[str] = set()
        self.latest: CheckpointMetadata | None = None
        #: Among the job's checkpoints those before this one are of another run, which it does not go on from.
        self._first = 1
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

    @property
    def _key_groups(self) -> dict[int, int]:
        """How many each vertex has."""
        most = self._config.max_parallelism
        return {vertex.id: most or default_max_parallelism(vertex.parallelism) for vertex in self._plan.job.vertices}

    # --- the life of the job

    def prepare(self) -> None:
        """Before the job starts, on the caller's thread. Raises CheckpointError for a folder that is of no use, and for
        a checkpoint that the job cannot go on from."""
        if self._resume is not None:
            self.latest = self._found(self._resume)
        if self.latest is not None:
            check_fits(self.latest, self._plan.job, self._key_groups)
            self.next_id = self.latest.id + 1
        if self._storage is not None:
            self._warn("restarts")
            self._storage.check()
            self.next_id = max(self.next_id, self._storage.next_id())
            self._first = 1 if self.latest is not None and self._resume in (LATEST, LATEST_IF_ANY) else self.next_id
        if self.next_id > LAST_ID // 2:
            raise CheckpointError(
                f"checkpoint {self.next_id - 1} leaves no numbers for others: start without it, in another folder"
            )
        options = CheckpointOptions(
            math.inf if self._storage is None else self._config.checkpoint_interval,
            self._config.checkpoint_min_pause,
            self._config.checkpoint_timeout,
            self._config.tolerable_failed_checkpoints,
        )
        self._coordinator = CheckpointCoordinator(self._plan, options, max(1, self.next_id))

    def _warn(self, when: str) -> None:
        for node in (vertex.head for vertex in self._plan.job.vertices):
            if node.source is not None and not node.source.replayable:
                log.warning("job %r: %s is begun anew when the job %s: what is on its way then is lost, and what it "
                            "gives again counts twice", self._job, node.name, when)  # fmt: skip
            elif node.source is not None and not node.source.resumable:
                log.warning("job %r: %s is read on when the job restarts by itself, but no other job goes on from its "
                            "checkpoints or savepoints (resume=): for that, write the rows to files, and read these",
                            self._job, node.name)  # fmt: skip

    def savepoint(self, uri: str | os.PathLike[str]) -> Future[str]:
        """Any thread: one below `uri` is wanted; then `look` is to be called. Raises CheckpointError for a folder that
        is of no use, and in batch mode."""
        return self._requests.savepoint(self._folder(uri))

    def stop(self, drain: bool, uri: str | os.PathLike[str] | None) -> Future[str | None]:
        """Any thread: the job is to end; then `look` is to be called. Raises CheckpointError where there can be no
        checkpoint to end with, ConfigError when it is being stopped in another way."""
        if self._requests.last is not None:
            return self._requests.last
        if not drain and uri is None:
            if self._config.is_batch:
                raise CheckpointError(_NONE_IN_BATCH)
            if self._storage is None:
                raise CheckpointError(
                    "to stop where it is a job needs a place for what it is to go on from: give savepoint=, or set the "
                    "option checkpoint_dir; stop(drain=True) needs none"
                )
            self._warn("goes on")
        return self._requests.stop(drain, None if uri is None else self._folder(uri))

    def _folder(self, uri: str | os.PathLike[str]) -> str:
        if self._config.is_batch:
            raise CheckpointError(_NONE_IN_BATCH)
        folder = absolute(uri).rstrip("/")
        CheckpointStorage(folder, self._job).check()
        if self._storage is None:
            self._warn("goes on")
        return folder

    @property
    def hint(self) -> str:
        """For who starts the job anew: that it could go on from a checkpoint; nothing, where that is not so."""
        if self.latest is not None or self._storage is None or not self._storage.completed():
            return ""
        return (
            f' (job {self._job!r} has checkpoints in {self._storage.folder}: resume="latest" goes on from the newest)'
        )

    def _found(self, resume: str) -> CheckpointMetadata | None:
        """The checkpoint to go on from, None for a fresh start. Raises CheckpointError."""
        if resume not in (LATEST, LATEST_IF_ANY):
            metadata = load_checkpoint(resume)
            verify_checkpoint(metadata)
            return metadata
        if self._storage is None:
            raise CheckpointError("to go on from the latest checkpoint the job needs its checkpoint_dir")
        completed = self._storage.completed()
        if not completed and resume == LATEST:
            where = f"job {self._job!r} has no checkpoint in {self._storage.folder}"
            raise CheckpointError(f'{where}: start it without one, or with resume="{LATEST_IF_ANY}"')
        return self._newest(self._storage, completed) if completed else None

    def _newest(self, storage: CheckpointStorage, completed: Sequence[int]) -> CheckpointMetadata:
        """The first of these that is as it was written. One that is not is passed over only if sinks had nothing to
        commit with it: else what they committed would come a second time. Raises CheckpointError: StorageError where
        nobody can tell now."""
        unreadable: StorageError | None = None
        for checkpoint in completed:
            has_committed = True
            try:
                metadata = storage.load(checkpoint)
                has_committed = bool(metadata.pending)
                verify_checkpoint(metadata)
                return metadata
            except CheckpointError as error:
                unreadable = error if isinstance(error, StorageError) else unreadable
                if has_committed:
                    break
                passed = f"job {self._job!r}: passes over checkpoint {checkpoint}, with which nothing was committed"
                log.warning("%s: %s", passed, error)
        if unreadable is not None:
            raise unreadable
        usable = storage.latest_usable()
        older = "" if usable is None else f"; name {storage.folder_of(usable.id)} to go on from an older one, "
        again = older and "and remove what was committed since, or it will be there twice"
        raise CheckpointError(f"{storage.folder_of(checkpoint)}: is damaged, see the warnings{older}{again}")

    def fall_back(self) -> bool:
        """The attempt could not read `latest`. Whether another one may: it is whole after all, or nobody can tell now,
        or it is damaged, and the one before, which is `latest` then, leads to the same results."""
        if self._storage is None or self.latest is None:
            return False
        try:
            completed = [each for each in self._storage.completed() if self._first <= each <= self.latest.id]
            if self.latest.id in completed:
                found = self._newest(self._storage, completed)
                check_fits(found, self._plan.job, self._key_groups)
                self.latest = found
            else:
                verify_checkpoint(self.latest)
        except StorageError:
            return True
        except CheckpointError:
            return False
        return True

    def start(self, attempt: int) -> None:
        """All tasks of the attempt run."""
        self._attempt = attempt
        self._do(self._coordinator.start(attempt, time.monotonic()))
        self.look()

    def look(self) -> None:
        """Something may have been asked for."""
        if self._requests.drains:
            self._tell({"type": "drain"})
        for request in self._requests.take():
            self._do(self._coordinator.request(request, time.monotonic()))

    def interrupted(self, error: Exception) -> None:
        """The attempt has failed."""
        self._do(self._coordinator.interrupted(f"the job failed: {error}", time.monotonic()))

    def close(self, error: HeadgateError | None, reason: str) -> None:
        """The job is over; `reason` is why nothing can be saved any more."""
        self._requests.close(self._last, error, reason)

    def restart(self) -> None:
        """The job is to go on from `latest`: what was written since is taken back. Raises the error of a sink."""
        self._ends.rollback(*self._of_latest())
        self.next_id = self._coordinator.last + 1

    def finish(self) -> None:
        """All tasks have ended, and all that they wrote has been told. Raises the error of a sink or the storage."""
        if self._coordinator.state is not State.OVER:
            raise CheckpointError(f"job {self._job!r}: its last checkpoint is not complete")
        self._ends.finish()

    def abort(self) -> list[str]:
        """The job has failed or was cancelled: leave what belongs to `latest`. Returns what could not be cleaned up."""
        return self._ends.abort(*self._of_latest())

    def _of_latest(self) -> tuple[Mapping[str, Sequence[Any]], int]:
        return ({}, 0) if self.latest is None else (self.latest.pending, self.latest.id)

    # --- what tasks tell

    def acknowledged(self, message: Message, part: Any) -> None:
        """A task's part is stored; `part` is what it told of its alignment."""
        file, pending = StateFile.of(message["file"]), message["pending"]
        self._kept.update(message["nodes"])
        task, checkpoint = _task(message), int(message["checkpoint"])
        now = time.monotonic()
        self._do(self._coordinator.acknowledged(task, self._attempt, checkpoint, file, pending, part, now))

    def declined(self, message: Message) -> None:
        """A task's part could not be stored."""
        reason, pending = str(message["reason"]), message["pending"]
        task, checkpoint = _task(message), int(message["checkpoint"])
        self._do(self._coordinator.declined(task, self._attempt, checkpoint, reason, pending, time.monotonic()))

    def task_finished(self, message: Message) -> None:
        """A task has ended, and all that it sent has been worked on."""
        task, took_part, final = _task(message), int(message["took_part"]), message["final"]
        pending = message["pending"]
        self._do(self._coordinator.finished(task, self._attempt, took_part, final, pending, time.monotonic()))

    # --- by the clock

    @property
    def deadline(self) -> float | None:
        return self._coordinator.deadline

    def on_time(self, now: float) -> None:
        self._do(self._coordinator.on_time(now))

    # --- what the coordinator decides

    def _do(self, actions: Sequence[Action]) -> None:
        """Raises the error that the job cannot go on with."""
        for action in actions:
            match action:
                case Trigger(checkpoint, tasks, request):
                    roots = [[task.vertex, task.subtask] for task in tasks]
                    savepoint = self._savepoint(checkpoint, request)
                    how = alignment(self._config) if request is None else (Alignment.ALIGNED, 0.0)
                    about = {
                        "savepoint": savepoint and savepoint.folder,
                        "stops": request is not None and request.stops,
                    }
                    self._tell({**barrier_message(checkpoint, *how), "roots": roots, **about})
                case Complete():
                    self._do(self._complete(action))
                case Abort():
                    self._abort(action)
                case Fail(error):
                    raise error

    def _savepoint(self, checkpoint: int, request: Request | None) -> SavepointStorage | None:
        """Where it is stored, if it is one."""
        if request is None or request.uri is None:
            return None
        return SavepointStorage.below(request.uri, self._job, checkpoint, self._run)

    def _complete(self, complete: Complete) -> list[Action]:
        request, savepoint = complete.request, self._savepoint(complete.checkpoint, complete.request)
        if self._storage is None and savepoint is None:  # all tasks have ended
            self._last = None
            self._ends.commit(complete.pending, 0 if self.latest is None else complete.checkpoint)
            return self._coordinator.stored(complete.checkpoint, time.monotonic())
        metadata = self._metadata(complete, "checkpoint" if savepoint is None else "savepoint")
        try:
            self._last = self._store(metadata, savepoint)
        except CheckpointError as error:
            return self._coordinator.not_stored(complete.checkpoint, error.message, time.monotonic())
        self.latest = metadata
        try:
            self._ends.commit(metadata.pending, metadata.id)
        finally:  # if that fails, the job goes on from it, and commits again
            if request is not None:
                self._requests.done(request, self._last)
        if self._storage is not None:
            self._storage.retain()
        if request is not None and request.stops and not all_finished(complete.parts):
            self._stopped()
        return self._coordinator.stored(complete.checkpoint, time.monotonic())

    def _store(self, metadata: CheckpointMetadata, savepoint: SavepointStorage | None) -> str:
        """Returns its path or URI. A savepoint is named among the job's own checkpoints, too: what sinks commit with it
        must not come again when the job goes on from its latest."""
        if savepoint is None:
            assert self._storage is not None
            return self._storage.complete(metadata)
        folder = savepoint.complete(metadata)
        if self._storage is not None:
            self._storage.complete(dataclasses.replace(metadata, folder=folder))
        return folder

    def _abort(self, abort: Abort) -> None:
        """Of a checkpoint of the job's own, what was written is removed with old ones."""
        savepoint = self._savepoint(abort.checkpoint, abort.request)
        if savepoint is not None:
            try:
                savepoint.discard(abort.checkpoint)
            except CheckpointError as error:
                log.warning("job %r: of a savepoint that failed something is left: %s", self._job, error)
        if abort.request is None:
            log.warning("job %r: checkpoint %d failed: %s", self._job, abort.checkpoint, abort.reason)
            return
        what = "the stop" if abort.request.stops else "savepoint"
        self._requests.failed(abort.request, f"{what} of job {self._job!r} failed: {abort.reason}")
        if abort.request.stops:
            self._tell({"type": "go on"})

    def _metadata(self, complete: Complete, kind: Kind) -> CheckpointMetadata:
        vertices = tuple(
            VertexState(
                vertex_key(vertex),
                vertex.name,
                self._key_groups[vertex.id],
                tuple(complete.parts[Task(vertex.id, subtask)] for subtask in range(vertex.parallelism)),
                tuple(map(node_key, vertex.nodes)),
            )
            for vertex in self._plan.job.vertices
        )
        prepared = self._ends.prepared()
        ended = [part.positions for part in complete.parts.values() if isinstance(part, Finished)]
        kept = self._kept.union(prepared, complete.pending, *ended)
        every = [node for vertex in self._plan.job.vertices for node in vertex.nodes]
        nodes = tuple(describe(node) for node in every if node_key(node) in kept)
        began = time.time() - complete.duration
        return CheckpointMetadata(
            complete.checkpoint, began, complete.duration, self._job, self._attempt, vertices, nodes,
            complete.pending, prepared, kind, exchanges=self._exchanges(complete),
        )  # fmt: skip

    def _exchanges(self, complete: Complete) -> tuple[ExchangeDescription, ...]:
        """Those of which data are in the checkpoint."""
        states = [part for part in complete.parts.values() if isinstance(part, StateFile)]
        used = {key for state in states if state.in_flight is not None for key in state.in_flight.exchanges}
        every = [describe_exchange(edge, self._plan.job) for edge in self._plan.job.edges] if used else []
        return tuple(exchange for exchange in every if exchange.key in used)


def alignment(config: Config) -> tuple[Alignment, float]:
    """How the barriers of a job's checkpoints go, and their timeout in seconds."""
    if not config.unaligned:
        return (Alignment.COUNTED if config.checkpoint_mode == "at-least-once" else Alignment.ALIGNED), 0.0
    return (Alignment.TIMEOUT if config.aligned_timeout else Alignment.UNALIGNED), config.aligned_timeout


def barrier_message(checkpoint: int, alignment: Alignment, timeout: float) -> Message:
    """Tells TaskManagers to begin a checkpoint; `timeout` in seconds."""
    times = {"timestamp": round(time.time() * 1e6), "timeout": round(timeout * 1e6)}
    return {"type": "barrier", "id": checkpoint, "alignment": int(alignment), **times}


def _task(message: Message) -> Task:
    return Task(int(message["vertex"]), int(message["subtask"]))
