"""What the checkpoint coordinator hears, and what it decides. Times are in seconds on one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from headgate.errors import CheckpointError
from headgate.state.checkpoint_metadata import StateFile, TaskState


class TaskId(NamedTuple):
    """One subtask of a vertex."""

    vertex: int
    subtask: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A checkpoint on request: a savepoint, whose folder is to be in `uri`, or with None another one of
    the job's own. With `stops` the job is over with it. With `at_end` it is for when all tasks have ended, and another
    one is taken in its place when the job restarts meanwhile."""

    uri: str | None
    stops: bool = False
    at_end: bool = False


# --- what the driver says


@dataclass(frozen=True, slots=True)
class Started:
    """All tasks of an attempt run."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The job has failed, or ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Requested:
    """Somebody wants a checkpoint. What becomes of it is said with the actions, unless the job ends before."""

    request: Request


@dataclass(frozen=True, slots=True)
class TimePassed:
    """It may be the coordinator's `deadline`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The metadata is there."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class NotStored:
    """The metadata could not be written."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What was pending is committed."""

    checkpoint: int


# --- what tasks say


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A task took its part and has written it. `pending` is what its sinks flushed, by node key, and `part` what it
    reported of its alignment."""

    task: TaskId
    attempt: int
    checkpoint: int
    pending: Mapping[str, Any]
    state: StateFile
    part: Any


@dataclass(frozen=True, slots=True)
class Declined:
    """A task could not take its part, or took it and could not write it."""

    task: TaskId
    attempt: int
    checkpoint: int
    pending: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task has ended, and all that it sent has been worked on. `took_part` is the last checkpoint it took its part
    in, 0 for none; `positions` and `pending` are those at its end, by node key."""

    task: TaskId
    attempt: int
    took_part: int
    positions: Mapping[str, Any]
    pending: Mapping[str, Any]


FromJob: TypeAlias = Started | Interrupted | Requested | TimePassed | Stored | NotStored | Committed
FromTask: TypeAlias = Acknowledged | Declined | TaskEnded
Event: TypeAlias = FromJob | FromTask

# --- what is to be done


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Inject the barrier at these tasks. May come more than once for a checkpoint, with other tasks."""

    checkpoint: int
    tasks: tuple[TaskId, ...]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Store the metadata, and say `Stored` or `NotStored`; `pending`, by node key, is what is to be committed."""

    checkpoint: int
    duration: float
    parts: Mapping[TaskId, TaskState]
    pending: Mapping[str, Sequence[Any]]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """The checkpoint is complete: commit what is pending, and say `Committed`."""

    complete: StoreMetadata


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """The checkpoint failed: what was written for it can be removed, unless its metadata may be there."""

    checkpoint: int
    reason: str
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The job cannot go on without a checkpoint. Nothing more is triggered until it has `Started` again."""

    error: CheckpointError


Action: TypeAlias = TriggerCheckpoint | StoreMetadata | Commit | AbortCheckpoint | Fail
