"""A job's checkpoints on the driver: what its coordinator decides is done here, with the storage, the sinks and the
TaskManagers.

Without `checkpoint_dir` there is one commit, at the end of the job. All of it is on the job's thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headgate.config import Config
from headgate.errors import CheckpointError
from headgate.plan.execution import ExecutionPlan
from headgate.plan.node_keys import check_fits, describe, node_key, vertex_key
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
    State,
    Task,
    Trigger,
)
from headgate.runtime.ends import Ends
from headgate.state.checkpoint_metadata import CheckpointMetadata, Finished, StateFile, VertexState
from headgate.state.checkpoint_storage import CheckpointStorage, load_checkpoint, verify_checkpoint
from headgate.transport.control_link import Message

log = logging.getLogger(__name__)

#: Of the job's own checkpoints the newest that can be used.
LATEST: Final = "latest"


class Checkpoints:
    """`latest` is what the job would go on from, `next_id` the number of the next one, 0 without checkpoints."""

    def __init__(
        self,
        job: str,
        plan: ExecutionPlan,
        config: Config,
        ends: Ends,
        tell: Callable[[Message], None],
        resume: str | None,
    ) -> None:
        self._job = job
        self._plan = plan
        self._config = config
        self._ends = ends
        self._tell = tell
        self._resume = resume
        self._storage = None if config.checkpoint_dir is None else CheckpointStorage(config.checkpoint_dir, job)
        self._coordinator: CheckpointCoordinator | None = None
        self._attempt = 0
        self._pending: dict[str, list[Any]] = {}
        #: Keys of nodes that have something in a checkpoint; others may come and go between two programs.
        self._kept: set[str] = set()
        self.latest: CheckpointMetadata | None = None
        self.next_id = 0

    @property
    def history(self) -> list[CheckpointRecord]:
        """The last ten."""
        return [] if self._coordinator is None else list(self._coordinator.history)

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
            check_fits(self.latest, self._plan.job, self._key_groups)
        if self._storage is None:
            return
        for node in (vertex.head for vertex in self._plan.job.vertices):
            if node.source is not None and not node.source.replayable:
                log.warning("job %r: %s cannot be read again: what is on its way when the job restarts is lost",
                            self._job, node.name)  # fmt: skip
        self._storage.check()
        self.next_id = self._storage.next_id()
        options = CheckpointOptions(
            self._config.checkpoint_interval,
            self._config.checkpoint_min_pause,
            self._config.checkpoint_timeout,
            self._config.tolerable_failed_checkpoints,
        )
        self._coordinator = CheckpointCoordinator(self._plan, options, self.next_id)

    def _found(self, resume: str) -> CheckpointMetadata:
        """The checkpoint to go on from. Raises CheckpointError.

        An older one is not taken in the place of the latest: sinks have committed what came after it.
        """
        if resume != LATEST:
            metadata = load_checkpoint(resume)
            verify_checkpoint(metadata)
            return metadata
        if self._storage is None:
            raise CheckpointError("to go on from the latest checkpoint the job needs its checkpoint_dir")
        completed = self._storage.completed()
        if not completed:
            where = f"job {self._job!r} has no checkpoint in {self._storage.folder}"
            raise CheckpointError(f"{where}: start it without one")
        usable = self._storage.latest_usable()
        if usable is None or usable.id != completed[0]:
            where = self._storage.folder_of(completed[0])
            older = (
                "" if usable is None else f"; name {self._storage.folder_of(usable.id)} to go on from an older one, "
            )
            again = older and "and remove what was committed since, or it will be there twice"
            raise CheckpointError(f"{where}: is damaged, see the warnings{older}{again}")
        return usable

    def start(self, attempt: int) -> None:
        """All tasks of the attempt run."""
        self._attempt = attempt
        if self._coordinator is not None:
            self._do(self._coordinator.start(attempt, time.monotonic()))

    def restart(self) -> None:
        """The job is to go on from `latest`: what was written since is taken back. Raises the error of a sink."""
        self._pending = {}
        self._ends.rollback(*self._of_latest())
        if self._coordinator is not None:
            self.next_id = self._coordinator.last + 1

    def finish(self) -> None:
        """All tasks have ended, and all that they wrote has been told. Raises the error of a sink or the storage."""
        if self._coordinator is None:
            self._ends.commit(self._pending, 0)
        elif self._coordinator.state is not State.OVER:
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
        assert self._coordinator is not None  # or no task would have one
        file, pending = StateFile(**message["file"]), message["pending"]
        self._kept.update(message["nodes"])
        task, checkpoint = _task(message), int(message["checkpoint"])
        now = time.monotonic()
        self._do(self._coordinator.acknowledged(task, self._attempt, checkpoint, file, pending, part, now))

    def declined(self, message: Message) -> None:
        """A task's part could not be stored."""
        assert self._coordinator is not None
        reason, pending = str(message["reason"]), message["pending"]
        task, checkpoint = _task(message), int(message["checkpoint"])
        self._do(self._coordinator.declined(task, self._attempt, checkpoint, reason, pending, time.monotonic()))

    def task_finished(self, message: Message) -> None:
        """A task has ended, and all that it sent has been worked on."""
        pending = message["pending"]
        if self._coordinator is None:
            for key, written in pending.items():
                self._pending.setdefault(key, []).append(written)
            return
        task, took_part, final = _task(message), int(message["took_part"]), message["final"]
        self._do(self._coordinator.finished(task, self._attempt, took_part, final, pending, time.monotonic()))

    # --- by the clock

    @property
    def deadline(self) -> float | None:
        return None if self._coordinator is None else self._coordinator.deadline

    def on_time(self, now: float) -> None:
        if self._coordinator is not None:
            self._do(self._coordinator.on_time(now))

    # --- what the coordinator decides

    def _do(self, actions: Sequence[Action]) -> None:
        """Raises the error that the job cannot go on with."""
        assert self._coordinator is not None and self._storage is not None
        for action in actions:
            match action:
                case Trigger(checkpoint, tasks):
                    roots = [[task.vertex, task.subtask] for task in tasks]
                    self._tell({**barrier_message(checkpoint, Alignment.ALIGNED, 0.0), "roots": roots})
                case Complete():
                    self._do(self._complete(self._coordinator, self._storage, action))
                case Abort(checkpoint, reason):
                    log.warning("job %r: checkpoint %d failed: %s", self._job, checkpoint, reason)
                case Fail(error):
                    raise error

    def _complete(
        self, coordinator: CheckpointCoordinator, storage: CheckpointStorage, complete: Complete
    ) -> list[Action]:
        metadata = self._metadata(complete)
        try:
            storage.complete(metadata)
        except CheckpointError as error:
            return coordinator.not_stored(complete.checkpoint, error.message, time.monotonic())
        self.latest = metadata
        self._ends.commit(metadata.pending, metadata.id)
        storage.retain()
        return coordinator.stored(complete.checkpoint, time.monotonic())

    def _metadata(self, complete: Complete) -> CheckpointMetadata:
        vertices = tuple(
            VertexState(
                vertex_key(vertex),
                vertex.name,
                self._key_groups[vertex.id],
                tuple(complete.parts[Task(vertex.id, subtask)] for subtask in range(vertex.parallelism)),
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
            complete.pending, prepared,
        )  # fmt: skip


def barrier_message(checkpoint: int, alignment: Alignment, timeout: float) -> Message:
    """Tells TaskManagers to begin a checkpoint; `timeout` in seconds."""
    times = {"timestamp": round(time.time() * 1e6), "timeout": round(timeout * 1e6)}
    return {"type": "barrier", "id": checkpoint, "alignment": int(alignment), **times}


def _task(message: Message) -> Task:
    return Task(int(message["vertex"]), int(message["subtask"]))
