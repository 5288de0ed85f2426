"""The events and actions of the checkpoint coordinator. Times are in seconds on one clock."""

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
    """A checkpoint on request: a savepoint, whose folder is to be in `uri`, or with None another checkpoint of the
    job's own.

    With `stops` the job is over with it. With `at_end` it is taken when all tasks have ended; when the job restarts
    before, it is taken again.
    """

    uri: str | None
    stops: bool = False
    at_end: bool = False


# --- events of the driver


@dataclass(frozen=True, slots=True)
class Started:
    """All tasks of an attempt run."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt has failed or ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Requested:
    """A checkpoint was requested. Actions report how it ended, unless the job ends before."""

    request: Request


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed, perhaps the coordinator's `deadline`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The metadata is stored."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class NotStored:
    """The metadata could not be written."""

    checkpoint: int
    reason: str


@dataclass(frozen=True, slots=True)
class Committed:
    """What sinks had pending is committed."""

    checkpoint: int


# --- events of tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A task took its part and has stored it. `pending` is what its sinks flushed, by node key; `part` is what it
    reported of its alignment."""

    task: TaskId
    attempt: int
    checkpoint: int
    pending: Mapping[str, Any]
    state: StateFile
    part: Any


@dataclass(frozen=True, slots=True)
class Declined:
    """A task could not take its part, or could not store it."""

    task: TaskId
    attempt: int
    checkpoint: int
    pending: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task has ended, and its consumers have processed all that it sent. `took_part` is the last checkpoint it took
    part in, 0 for none; `positions` and `pending` are those at its end, by node key."""

    task: TaskId
    attempt: int
    took_part: int
    positions: Mapping[str, Any]
    pending: Mapping[str, Any]


FromJob: TypeAlias = Started | Interrupted | Requested | TimePassed | Stored | NotStored | Committed
FromTask: TypeAlias = Acknowledged | Declined | TaskEnded
Event: TypeAlias = FromJob | FromTask

# --- actions


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Inject the barrier at these tasks. It may come more than once for a checkpoint, with other tasks."""

    checkpoint: int
    tasks: tuple[TaskId, ...]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Store the metadata, and send `Stored` or `NotStored`; `pending`, by node key, is what is to be committed."""

    checkpoint: int
    duration: float
    parts: Mapping[TaskId, TaskState]
    pending: Mapping[str, Sequence[Any]]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit what is pending, and send `Committed`: the checkpoint is complete."""

    complete: StoreMetadata


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Remove what was written for the checkpoint, unless its metadata may exist: it failed."""

    checkpoint: int
    reason: str
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the attempt: too many checkpoints failed. Nothing is triggered until the job has `Started` again."""

    error: CheckpointError


Action: TypeAlias = TriggerCheckpoint | StoreMetadata | Commit | AbortCheckpoint | Fail
