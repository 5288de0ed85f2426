"""The events and actions of the checkpoint coordinator. Times are in seconds on one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from headgate.errors import CheckpointError
from headgate.state.checkpoint_metadata import StateFile, TaskState


class TaskId(NamedTuple):
    """The id of a task: its vertex and its subtask number."""

    vertex: int
    subtask: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request for a checkpoint. It is a savepoint below `uri`, or one of the job's own checkpoints if `uri` is None.

    If `stops` is true, the job is over when sinks have committed the checkpoint. If `at_end` is true, the checkpoint is
    taken when all tasks have ended. If the job restarts before one of these two is committed, the request is repeated.
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
    """A checkpoint was requested. Later actions report its outcome, unless the job ends first."""

    request: Request


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed. The coordinator acts if its `deadline` has come."""


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
    """The sinks have committed their pending results."""

    checkpoint: int


# --- events of tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A task has stored its part of the checkpoint.

    `pending` has the results that the task's sinks flushed, by node key. `part` is the task's report on its alignment.
    """

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
    """A task has ended, and its consumers have processed all that it sent.

    `took_part` is the last checkpoint that the task took part in, or 0. `positions` and `pending` are the source
    positions and the pending results at the task's end, by node key.
    """

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
    """Inject the checkpoint's barrier at these tasks. One checkpoint may cause several such actions, for different
    tasks."""

    checkpoint: int
    tasks: tuple[TaskId, ...]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Store the metadata, and send `Stored` or `NotStored`. `pending` has the results for sinks to commit, by node
    key."""

    checkpoint: int
    duration: float
    parts: Mapping[TaskId, TaskState]
    pending: Mapping[str, Sequence[Any]]
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the pending results of a complete checkpoint, and send `Committed`."""

    complete: StoreMetadata


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Remove the files of a failed checkpoint, unless its metadata may exist."""

    checkpoint: int
    reason: str
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the attempt: too many checkpoints failed. No checkpoint is triggered until the job has `Started` again."""

    error: CheckpointError


Action: TypeAlias = TriggerCheckpoint | StoreMetadata | Commit | AbortCheckpoint | Fail
