"""The messages between the driver and its TaskManagers: a class for each message. `message_codec` encodes them as JSON.

To add a message, add a class and name it in one of the unions at the end; `docs/contributing/architecture.md` says in
which. Then handle the message in the `match` of `Attempt`, `JobMaster` or `TaskManager`. mypy finds a message that is
not handled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Required, TypeAlias, TypedDict

from headgate.observe.channel_trace import TraceEvent
from headgate.observe.profile import Frame
from headgate.records.events import Alignment
from headgate.runtime.message_codec import codec_of
from headgate.state.checkpoint_metadata import StateFile

Stream: TypeAlias = Literal["stdout", "stderr"]


class Part(TypedDict, total=False):
    """A task's report on one checkpoint, with times in seconds; see `TaskBarriers`.

    The driver adds `async_s`, the time that storing the state took.
    """

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
    """A TaskManager has registered. It accepts data links at this address; `pid` is the id of its process."""

    host: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """All operators of the TaskManager's first tasks are open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportMetrics:
    """The current metrics of the TaskManager."""

    #: The values are finite numbers and names. msgspec encodes them faster than `json` does. It would change other
    #: values: NaN becomes null.
    has_only_metrics: ClassVar[bool] = True

    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """Lines that functions of a task printed."""

    task: str
    stream: Stream
    lines: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverRows:
    """A batch for a sink on the driver. The payload has `size` bytes; `node` is the id of the sink's node.

    `checkpoint` is the number of the checkpoint that the rows belong to, or 0 without checkpoints.
    """

    node: int
    size: int
    checkpoint: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCheckpointMetrics:
    """A task's report on a checkpoint."""

    part: Part


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeCheckpoint:
    """A task's part of a checkpoint is stored.

    `nodes` holds the keys of the nodes with state in the part. `pending` has, by node key, the values for the commits
    of sinks and sources. `async_s` is how long storing the part took, in seconds.
    """

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
    """A task's part of a checkpoint could not be stored. Sinks and sources commit `pending` with a later checkpoint."""

    task: str
    vertex: int
    subtask: int
    checkpoint: int
    pending: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    """A task has ended, and its consumers have processed all that it sent.

    `took_part` is the last checkpoint that the task took part in, or 0. `pending` has, by node key, what the task's
    sinks and source still have to commit for the rows after that checkpoint (for all rows, if it is 0). `final` has, by
    node key, the position at which the task's source ended, and the task's counters.
    """

    vertex: int
    subtask: int
    took_part: int
    pending: dict[str, Any]
    final: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllFinished:
    """All tasks of the TaskManager have ended without an error, and consumers have taken all output of the tasks."""

    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The TaskManager's first error, as `headgate.errors.to_wire` encodes it."""

    error: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """The functions of these operators do not return, although their tasks were cancelled."""

    operators: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportProfile:
    """The answer to `TakeProfile`. `headgate.observe.profile` describes the fields.

    If the task ended during the profile, `seconds` is smaller than requested.
    """

    request: int
    seconds: float
    looks: int
    samples: int
    cpu_s: float
    run_delay_s: float | None
    frames: list[Frame]
    stacks: list[tuple[list[int], int, float]]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTrace:
    """The answer to `TraceChannel`: the events at this TaskManager's end of the channel, or at both ends.

    `began_at` is in seconds since the epoch; the times of events count from then. If `is_full` is true, the later
    events are missing.
    """

    request: int
    ends: Literal["producer", "consumer", "both"]
    began_at: float
    events: list[TraceEvent]
    is_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportKeys:
    """The answer to `SampleKeys`: the hot keys of a task, as (text, share of its rows), the hottest first.

    `rows` is the number of rows that the sample stands for.
    """

    request: int
    rows: int
    shares: list[tuple[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclineRequest:
    """The answer to a request for a profile, a trace or a sample that the TaskManager could not carry out."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSleep:
    """`JStormMaster`: a subtask is congested. `flow_ms` is the time that its last message took, in whole milliseconds.

    If `flow_ms` is None, the subtask is no longer congested, or the subtask of a source has stopped sleeping.
    """

    task: tuple[int, int]
    flow_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceBackPressure:
    """`HeronSpout`: the TaskManager now has a full connection (`starts` is true), or has none any more."""

    starts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTrees:
    """`MaxPending`: messages that sources have sent, and messages that tasks have processed.

    The root is the id of a source's message. Entries of `started` have the root, the XOR of the ids of the copies that
    the source sent, and the source (vertex, subtask). Entries of `done` have the root, and the XOR of the processed
    message's id and the ids of the messages that came from it. See `headgate.throttle.acker`.
    """

    started: list[tuple[int, int, int, int]]
    done: list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """`SparkPid`: a subtask of a source has sent all rows of a batch, and the barrier that closes it."""

    batch: int
    task: tuple[int, int]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWatermark:
    """The watermark of a subtask of an aligned source, in microseconds since the epoch. None: the subtask is idle or
    has ended, so the others do not wait for it."""

    node: int
    subtask: int
    watermark: int | None


# --- the driver to a TaskManager


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTasks:
    """Start the tasks. The driver sends this when all TaskManagers are ready.

    `addresses` holds the address of each TaskManager, by its number. `started_at` is the time when the tasks of the
    job's first attempt started, in seconds since the epoch.
    """

    addresses: list[tuple[str, int]]
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStage:
    """In batch mode: run the tasks of these vertices, whose input is complete."""

    vertices: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The driver has taken `size` bytes of rows."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectBarrier:
    """Inject a checkpoint's barrier at the tasks (vertex, subtask) in `roots`. Tasks write their state to `folder`.

    If `stops` is true, the job ends with the checkpoint, and sources read nothing more. If `roots` is None, all sources
    send a probe: a barrier that measures times and stores nothing. A probe has no `folder`. `timestamp` is in
    microseconds since the epoch, `timeout` in microseconds.
    """

    checkpoint: int
    alignment: Alignment
    timestamp: int
    timeout: int
    roots: list[tuple[int, int]] | None = None
    folder: str | None = None
    stops: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinueSources:
    """Let sources continue to read, because the checkpoint of a stop has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Let sources end at their current positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeProfile:
    """Sample the thread of a task for `seconds` seconds. The profile is of the operator with the id `node`."""

    request: int
    vertex: int
    subtask: int
    node: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceChannel:
    """Record for `seconds` seconds what passes one channel of an exchange, at each end that the TaskManager has."""

    request: int
    exchange: str
    producer: int
    consumer: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKeys:
    """Sample the rows of a task for `seconds` seconds, and find its hot keys.

    `keys` has the key columns of each input of the task's first operator. An input without a key has none.
    """

    request: int
    vertex: int
    subtask: int
    keys: list[list[str]]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSleep:
    """`JStormMaster`: subtasks of sources must sleep longer, because a message took `flow_ms` whole milliseconds.

    If `flow_ms` is None, the sources may sleep less. `tasks` may then also have subtasks of other operators: no source
    upstream of these sleeps any more.
    """

    tasks: list[tuple[int, int]]
    flow_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayBackPressure:
    """`HeronSpout`: TaskManager `taskmanager` has announced that it has a full connection (`starts` is true), or none
    any more."""

    taskmanager: int
    starts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTrees:
    """`MaxPending`: trees that have ended. A tree is a source's message with all messages that came from it.

    A tree ends when all its messages are processed. An entry has the source (vertex, subtask) and the tree's root id.
    """

    trees: list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBatch:
    """`SparkPid`: sources may send the rows of this batch, because the previous batch is complete."""

    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRate:
    """`SparkPid`: the new rate of subtasks of sources, in rows per second."""

    tasks: list[tuple[int, int]]
    rows_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignSource:
    """Subtasks of an aligned source may read up to the watermark `bound` (microseconds since the epoch)."""

    node: int
    bound: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End the TaskManager, because the job has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """End the TaskManager now, because the job has failed or was cancelled."""


#: The messages about the TaskManager itself, which `Attempt` handles.
ToAttempt: TypeAlias = Registered | Ready | AllFinished | Failed | Stuck
#: The messages to the driver's part of the throttle.
ToThrottle: TypeAlias = RequestSleep | AnnounceBackPressure | ReportTrees | ReportBatch
#: The orders that the driver's part of the throttle sends.
ThrottleOrder: TypeAlias = OrderSleep | RelayBackPressure | EndTrees | ReleaseBatch | SetRate
#: The answers to requests of the driver.
Report: TypeAlias = ReportProfile | ReportTrace | ReportKeys
#: The messages about tasks, which `Attempt` passes on to `JobMaster`.
ToJob: TypeAlias = (
    ReportMetrics
    | Printed
    | DeliverRows
    | ReportCheckpointMetrics
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | TaskFinished
    | Report
    | DeclineRequest
    | ReportWatermark
    | ToThrottle
)
FromTaskManager: TypeAlias = ToAttempt | ToJob
FromDriver: TypeAlias = (
    StartTasks
    | RunStage
    | Delivered
    | InjectBarrier
    | ContinueSources
    | Drain
    | TakeProfile
    | TraceChannel
    | SampleKeys
    | AlignSource
    | ThrottleOrder
    | Close
    | Cancel
)


#: The codecs of the driver's end of a link, and of a TaskManager's end.
OF_DRIVER: Final = codec_of(FromTaskManager)
OF_TASKMANAGER: Final = codec_of(FromDriver)
