"""The answers of the REST interface. `/openapi.json` is made from these types.

Times are in seconds since the epoch, durations in seconds, and watermarks in microseconds since the epoch. Shares are
numbers from 0 to 1.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from headgate.protocol.traced_ends import TraceKind

Level = Literal["OK", "LOW", "HIGH"]
#: "none": no watermark was sent yet. "idle": all source subtasks are idle. "time": there is a watermark. "ended": the
#: input has ended.
WatermarkState = Literal["none", "idle", "time", "ended"]
#: "cause": this part of the job limits its throughput. "waits": this part waits for the cause.
Role = Literal["cause", "waits", ""]


class Fault(Struct, kw_only=True, frozen=True):
    """The answer to a refused request. `errors` has the reasons."""

    errors: list[str]


class JobSummary(Struct, kw_only=True, frozen=True):
    """A job in the list of jobs."""

    id: str
    name: str
    state: str
    started_at: float | None
    ended_at: float | None
    duration_s: float
    restarts: int
    error: str | None


class Jobs(Struct, kw_only=True, frozen=True):
    """The running jobs, and the last jobs that ended."""

    jobs: list[JobSummary]


class OperatorAnswer(Struct, kw_only=True, frozen=True):
    """An operator of a chain. `busy_ratio` is the busy share of its busiest subtask."""

    id: int
    name: str
    kind: str
    busy_ratio: float
    role: Role


class TimeShares(Struct, kw_only=True, frozen=True):
    """How a subtask spends its time, as shares: it works, or waits for room in its output, its throttle, or input.

    `level` depends on `backpressured_ratio`: OK up to 0.10, LOW up to 0.50, and HIGH above 0.50.
    """

    level: Level
    busy_ratio: float
    backpressured_ratio: float
    throttled_ratio: float
    idle_ratio: float


class VertexAnswer(TimeShares, kw_only=True, frozen=True):
    """A chain of operators. Each share of time is the largest of all subtasks, so the shares may add up to over 1.

    Of the `parallelism` subtasks, those that have not started are neither `running` nor `ended`.
    """

    id: int
    name: str
    parallelism: int
    running: int
    ended: int
    operators: list[OperatorAnswer]
    role: Role
    rows_in_per_s: float
    rows_out_per_s: float
    rows_in: int
    rows_out: int
    late_rows: int
    watermark: int | None
    watermark_state: WatermarkState


class EdgeAnswer(Struct, kw_only=True, frozen=True):
    """An exchange between two vertices. `blocked_ratio` is the share of time in which producers wait for buffers."""

    name: str
    source: int
    target: int
    partitioning: str
    rows_per_s: float
    bytes_per_s: float
    blocked_ratio: float
    role: Role


class JobAnswer(Struct, kw_only=True, frozen=True):
    """A job with its graph, and with the options that differ from their defaults."""

    id: str
    name: str
    state: str
    started_at: float | None
    ended_at: float | None
    duration_s: float
    restarts: int
    error: str | None
    attempt: int
    options: dict[str, str]
    versions: dict[str, str]
    vertices: list[VertexAnswer]
    edges: list[EdgeAnswer]


class SubtaskAnswer(TimeShares, kw_only=True, frozen=True):
    """A subtask of a vertex. Its shares of time add up to 1, until it has no more input and waits for its consumers."""

    vertex: int
    vertex_name: str
    subtask: int
    name: str
    ended: bool
    role: Role
    soft_backpressured_ratio: float
    hard_backpressured_ratio: float
    checkpoint_ratio: float
    cpu_ratio: float | None
    rows_in_per_s: float
    in_pool_usage: float
    out_pool_usage: float
    input_queue: int


class Subtasks(Struct, kw_only=True, frozen=True):
    """The subtasks of a vertex from number `offset` on. `total` is the number of all its subtasks."""

    total: int
    offset: int
    subtasks: list[SubtaskAnswer]


class ChannelAnswer(Struct, kw_only=True, frozen=True):
    """A channel from a producer subtask to a consumer subtask. One credit is one free buffer at the consumer.

    `credit_wait_ratio` is the share of the last seconds in which data waited because the credit was 0.
    `without_buffer_ratio` is the share in which the consumer had no free buffer. `credit_wait_s` and `without_buffer_s`
    are the same times in seconds since the start of the attempt. `backlog` is the number of buffers that wait at the
    producer, and `queue` the number that wait at the consumer. `in_flight_bytes` are the bytes in both. Unknown values
    are null: a channel within one TaskManager has no credit and no queue.
    """

    exchange: str
    producer: int
    consumer: int
    producer_name: str
    consumer_name: str
    credit: int | None
    credits_granted: int | None
    credits_granted_per_s: float | None
    credits_spent_per_s: float | None
    credit_wait_ratio: float | None
    credit_wait_s: float | None
    without_buffer_ratio: float | None
    without_buffer_s: float | None
    backlog: int | None
    queue: int | None
    in_flight_bytes: int | None
    bytes_per_s: float | None


class Channels(Struct, kw_only=True, frozen=True):
    """The channels from rank `offset` on. The channel that waits longest has rank 0.

    `total` is the number of reported channels. A TaskManager reports the 50 outgoing and the 50 incoming channels that
    wait longest.
    """

    at: float | None
    total: int
    offset: int
    channels: list[ChannelAnswer]


class TraceEventAnswer(Struct, kw_only=True, frozen=True):
    """An event of a trace. `at` is in seconds from the begin of the trace.

    "sent" and "received": data buffers; `number` is the same at both ends, `left` is the backlog. "granted" and
    "credited": an AddCredit of the consumer, and its arrival; `number` is the same at both ends, `left` the credit that
    the producer then has. "read": buffers that the consumer's task read; `left` is the rest of the consumer's queue.
    """

    kind: TraceKind
    at: float
    buffers: int
    number: int
    left: int


class TraceAnswer(Struct, kw_only=True, frozen=True):
    """The events of a channel, in the order of time. `is_complete` is false if one end had over 5,000 events."""

    exchange: str
    producer: int
    consumer: int
    producer_name: str
    consumer_name: str
    at: float
    seconds: float
    is_complete: bool
    events: list[TraceEventAnswer]


class SubtaskPressure(TimeShares, kw_only=True, frozen=True):
    """The back-pressure of a subtask."""

    subtask: int


class Backpressure(Struct, kw_only=True, frozen=True):
    """The back-pressure of a vertex. `level` is the level of its worst subtask.

    `status` is "pending" in a job's first three seconds.
    """

    status: Literal["ok", "pending"]
    level: Level
    end_timestamp: float | None
    total: int
    offset: int
    subtasks: list[SubtaskPressure]


class HotLineAnswer(Struct, kw_only=True, frozen=True):
    """A line of a profiled function. `share` is the line's share of the operator's samples.

    `on` is the share of the line's samples in which the thread used a processor.
    """

    file: str
    line: int
    function: str
    share: float
    on: float


class FlameNode(Struct, kw_only=True, frozen=True):
    """A frame of a flame graph, and the frames that it called, the one with most samples first.

    `value` is the number of samples with this frame. `on` is the number of these in which the thread used a processor.
    """

    name: str
    file: str
    line: int
    value: int
    on: float
    children: list[FlameNode]


class FlameGraph(Struct, kw_only=True, frozen=True):
    """A profile of one subtask of an operator. `data` is its flame graph, the 500 nodes with most samples.

    `share` is the share of the `samples` in which the operator worked. `on` is the share of these in which its thread
    used a processor. `hottest` are the five lines with most samples. `left_out` samples had too many different stacks.
    A share of 0.5 is exact to within `margin` percentage points, by the number of `looks`.
    """

    vertex: int
    operator: str
    subtask: int
    end_timestamp: float
    seconds: float
    looks: int
    margin: float
    samples: int
    share: float
    on: float
    cpu_s: float
    run_delay_s: float | None
    left_out: int
    hottest: list[HotLineAnswer]
    data: FlameNode


class ProfileSummary(Struct, kw_only=True, frozen=True):
    """The operator of the last profile, and the end of the profile. `flamegraph` of its vertex returns the profile."""

    vertex: int
    operator: str
    subtask: int
    end_timestamp: float


class FindingAnswer(Struct, kw_only=True, frozen=True):
    """A place that limits the job's throughput, why, and what to do.

    With the remedy, the job would carry `gain` times as many rows. null means that the gain is unknown. If `at_least`
    is true, the job may gain more.
    """

    severity: Literal["limit", "behind", "stuck"]
    place: str
    vertex: int | None
    operator: str | None
    subtasks: list[int]
    waits: list[str]
    cause: str
    why: str
    evidence: dict[str, float]
    remedy: str
    gain: float | None
    at_least: bool
    limit: str
    hottest: list[HotLineAnswer]
    sentence: str


class Diagnosis(Struct, kw_only=True, frozen=True):
    """The diagnosis of a job: the places that limit its throughput, the worst first.

    `severity` is "pending" in a job's first three seconds, "ok" without findings, and "ended" after the job's end. The
    findings of an ended job describe its last seconds.
    """

    severity: Literal["pending", "ok", "limit", "behind", "stuck", "ended"]
    sentence: str
    at: float | None
    findings: list[FindingAnswer]


class SourceLag(Struct, kw_only=True, frozen=True):
    """The lag of a source with a schedule: the largest lag of its subtasks.

    `growth` is in seconds per second. `catch_up_s` is the expected time until the lag is gone, or null if the lag does
    not shrink.
    """

    operator: str
    subtask: int
    lag_s: float
    growth: float
    catch_up_s: float | None


class SplitUnread(Struct, kw_only=True, frozen=True):
    """What waits in one split of a source, for example in a Kafka partition.

    `growth` is in messages per second. `catch_up_s` is the expected time until nothing waits, or null if it does not
    shrink.
    """

    operator: str
    split: str
    messages: int
    growth: float
    catch_up_s: float | None


class CheckpointAnswer(Struct, kw_only=True, frozen=True):
    """A checkpoint that has completed or failed.

    `start_delay_s`, `alignment_s`, `sync_s` and `async_s` are the largest values of its tasks. `slowest` is the task
    that completed last.
    """

    id: int
    kind: str
    triggered_at: float
    duration_s: float
    size_bytes: int
    failure: str | None
    tasks: int
    unaligned: bool
    slowest: str | None
    start_delay_s: float
    alignment_s: float
    sync_s: float
    async_s: float


class CheckpointsAnswer(Struct, kw_only=True, frozen=True):
    """The last ten checkpoints and savepoints, in the order in which they ended."""

    checkpoints: list[CheckpointAnswer]


class MetricsAnswer(Struct, kw_only=True, frozen=True):
    """The counters of a job, without the counters of its tasks. `docs/reference/metrics.md` describes them."""

    at: float | None
    attempt: int
    metrics: dict[str, Any]


class SeriesPoints(Struct, kw_only=True, frozen=True):
    """A time series. A point is `[begin, smallest, mean, largest]`; `begin` is in seconds since the epoch."""

    name: str
    points: list[tuple[float, float, float, float]]


class SeriesAnswer(Struct, kw_only=True, frozen=True):
    """The requested time series, or the names of all series. `total` is the number of names that match."""

    total: int
    names: list[str]
    series: list[SeriesPoints]


class Overview(Struct, kw_only=True, frozen=True):
    """All that the page shows of a job, except for its time series: one server-sent event."""

    at: float | None
    now: float
    job: JobSummary
    attempt: int
    diagnosis: Diagnosis
    vertices: list[VertexAnswer]
    edges: list[EdgeAnswer]
    subtasks: list[SubtaskAnswer]
    lag: list[SourceLag]
    unread: list[SplitUnread]
    profile: ProfileSummary | None
    checkpoints: list[CheckpointAnswer]
    #: Whether `/report` has a report of the program.
    has_report: bool
