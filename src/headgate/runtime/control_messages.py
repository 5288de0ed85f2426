"""What the driver and its TaskManagers say to each other: a class for each message, as JSON on the control link.

A new message is a class here, stands in one of the two unions, and is answered where its union is dispatched:
`Attempt` and `JobMaster` hear TaskManagers, `TaskManager` hears the driver.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Required, TypeAlias, TypedDict, get_args

import msgspec

from headgate.records.events import Alignment
from headgate.state.checkpoint_metadata import StateFile, WrittenFile
from headgate.state.shapes import is_deeper
from headgate.transport.control_link import Codec

#: So deep may lists and objects be within each other.
MAX_NESTING: Final = 100
#: Characters of the name of a type that is none, in an error.
_LONGEST_NAME: Final = 80


Stream: TypeAlias = Literal["stdout", "stderr"]


class Part(TypedDict, total=False):
    """What one task tells of one checkpoint, times in seconds: see `TaskBarriers`. The driver adds `async_s`, in which
    the state was stored."""

    checkpoint: Required[int]
    task: Required[str]
    unaligned: bool
    aborted: bool
    start_delay_s: float
    triggered_s: float
    alignment_s: float
    sync_s: float
    async_s: float
    completed_s: float
    processed_bytes: int
    overtaken_in_bytes: int
    overtaken_out_bytes: int


# --- a TaskManager to the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Its data links are served at this address; `pid` is its process."""

    host: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All operators of its first tasks are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportMetrics:
    """What is measured there now."""

    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Lines that functions of a task wrote."""

    task: str
    stream: Stream
    lines: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverRows:
    """The payload is a batch of `size` bytes for the sink of that node; it belongs to this checkpoint."""

    node: int
    size: int
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCheckpointMetrics:
    """How a checkpoint went at a task."""

    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeCheckpoint:
    """A task's part is stored. `nodes` are the keys of those that have state in it, `pending` what their sinks are to
    commit, `async_s` the seconds that it took."""

    task: str
    vertex: int
    subtask: int
    checkpoint: int
    pending: dict[str, Any]
    nodes: list[str]
    file: StateFile
    async_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclineCheckpoint:
    """A task's part could not be stored; what its sinks are to commit goes with a later one."""

    task: str
    vertex: int
    subtask: int
    checkpoint: int
    pending: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    """A task has ended, and all that it sent has been worked on. `took_part` is the last checkpoint that it is in,
    `final` where its sources ended, by node key."""

    vertex: int
    subtask: int
    took_part: int
    pending: dict[str, Any]
    final: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllFinished:
    """All its tasks have ended well, and their consumers have taken everything."""

    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The first error there, as `headgate.errors.to_wire` makes it."""

    error: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """The functions of these operators do not return, though their tasks were cancelled."""

    operators: list[str]


# --- the driver to a TaskManager


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTasks:
    """All are ready: where the TaskManagers are, by number, and when the job began (seconds since the epoch)."""

    addresses: list[tuple[str, int]]
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage:
    """In batch mode: all that these vertices read has been written."""

    vertices: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """So many bytes of rows have been taken."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectBarrier:
    """Begin a checkpoint at the tasks (vertex, subtask) that `roots` names, whose state goes to `folder`; sources read
    nothing more if the job `stops` with it. Without `roots` it is a probe, for all sources. Times are microseconds,
    `timestamp` since the epoch."""

    checkpoint: int
    alignment: Alignment
    timestamp: int
    timeout: int
    roots: list[tuple[int, int]] | None = None
    folder: str | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueSources:
    """The checkpoint that the job was to stop with has failed: read on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Sources end where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """The job has ended well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """It has not: end now."""


FromTaskManager: TypeAlias = (
    Registered
    | Ready
    | ReportMetrics
    | Printed
    | DeliverRows
    | ReportCheckpointMetrics
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | TaskFinished
    | AllFinished
    | Failed
    | Stuck
)
FromDriver: TypeAlias = StartTasks | RunStage | Delivered | InjectBarrier | ContinueSources | Drain | Close | Cancel


def encode(message: FromTaskManager | FromDriver) -> bytes:
    """A JSON object with the fields, and as `type` the name of the class. Raises TypeError for a value of a source or
    sink that JSON does not have."""
    return json.dumps({"type": type(message).__name__, **_fields(message)}, default=_of_file).encode()


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def _of_file(value: object) -> dict[str, Any]:
    if isinstance(value, WrittenFile):
        return _fields(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def decode(kinds: Mapping[str, type], text: bytes) -> Any:
    """The inverse, for messages of these classes, by name. Raises ValueError, which names the place, for all else."""
    fields = _parsed(text)
    name = fields.pop("type", None) if isinstance(fields, dict) else None
    if not isinstance(name, str) or name not in kinds:
        raise ValueError(f"of the type {str(name)[:_LONGEST_NAME]!r}, which is none")
    try:
        return msgspec.convert(fields, kinds[name])
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def _parsed(text: bytes) -> Any:
    """Raises ValueError for what is nested so deep that who walks it may have no stack left."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if is_deeper(value, MAX_NESTING):
        raise ValueError("nested too deep")
    return value


def _codec(union: Any) -> Codec:
    return Codec(encode, partial(decode, {kind.__name__: kind for kind in get_args(union)}))


#: Of the driver's end of a link, and of a TaskManager's.
OF_DRIVER: Final = _codec(FromTaskManager)
OF_TASKMANAGER: Final = _codec(FromDriver)
