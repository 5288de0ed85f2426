"""The answers of the REST interface. `/openapi.json` is made from these types.

Times are seconds since the epoch, durations seconds, shares between 0 and 1, watermarks microseconds since the epoch.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Level = Literal["OK", "LOW", "HIGH"]
#: "none": no watermark was sent. "idle": no source subtask has data to wait for. "ended": the input has ended.
WatermarkState = Literal["none", "idle", "time", "ended"]
#: "cause": it holds the job up. "waits": it is held up.
Role = Literal["cause", "waits", ""]


class Fault(Struct, kw_only=True, frozen=True):
    """Why a request was refused."""

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
    """The jobs that run, and the last ones that ended."""

    jobs: list[JobSummary]


class OperatorAnswer(Struct, kw_only=True, frozen=True):
    """An operator of a chain. Its busy share is that of its busiest subtask."""

    id: int
    name: str
    kind: str
    busy_ratio: float
    role: Role


class TimeShares(Struct, kw_only=True, frozen=True):
    """How a subtask spends its time: it works, waits for room in its output, or waits for input.

    `level` is that of the second: up to a share of 0.10 OK, up to 0.50 LOW, above HIGH.
    """

    level: Level
    busy_ratio: float
    backpressured_ratio: float
    idle_ratio: float


class VertexAnswer(TimeShares, kw_only=True, frozen=True):
    """A chain of operators. Shares of time are those of its worst subtask, so they may add up to more than 1."""

    id: int
    name: str
    parallelism: int
    running: int
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
    """An exchange between two vertices. `blocked_ratio` is the share of time in which its producers wait for room."""

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
    """A subtask of a vertex. The parts of its time add up to 1, but for what it waits at its end."""

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
    """Subtasks of a vertex, from `offset`. `total` is how many there are."""

    total: int
    offset: int
    subtasks: list[SubtaskAnswer]


class ChannelAnswer(Struct, kw_only=True, frozen=True):
    """A channel from a subtask to a subtask, with its credit. One credit is one free buffer at the consumer.

    `credit_wait_ratio` is the share of the last seconds in which data waited because the credit was 0, and
    `without_buffer_ratio` that in which the consumer had no free buffer. `..._s` are their seconds in this attempt.
    `backlog` (at the producer) and `queue` (at the consumer) are buffers; `in_flight_bytes` are the bytes in both.
    Values are null where they are not known: within one TaskManager there is no credit and no queue.
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
    """Channels from `offset`, those that wait most first. `total` is how many are known: at each end a TaskManager
    reports the 50 that wait longest."""

    at: float | None
    total: int
    offset: int
    channels: list[ChannelAnswer]


class SubtaskPressure(TimeShares, kw_only=True, frozen=True):
    """The back-pressure of a subtask."""

    subtask: int


class Backpressure(Struct, kw_only=True, frozen=True):
    """The back-pressure of a vertex, which has the level of its worst subtask. It is "pending" in a job's first three
    seconds."""

    status: Literal["ok", "pending"]
    level: Level
    end_timestamp: float | None
    total: int
    offset: int
    subtasks: list[SubtaskPressure]


class HotLineAnswer(Struct, kw_only=True, frozen=True):
    """A line of a profiled function. `share` is its share of the operator's samples, `on` the share of these in which a
    processor worked."""

    file: str
    line: int
    function: str
    share: float
    on: float


class FindingAnswer(Struct, kw_only=True, frozen=True):
    """A place that holds the job up, why, and what to do. `gain`: how many times as many rows the job would carry."""

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
    limit: str
    hottest: list[HotLineAnswer]
    sentence: str


class Diagnosis(Struct, kw_only=True, frozen=True):
    """What holds the job up, the worst first. `severity` is "pending" in a job's first three seconds, "ok" if nothing
    holds it up, and "ended" after its end; the findings are then those of its last seconds."""

    severity: Literal["pending", "ok", "limit", "behind", "stuck", "ended"]
    sentence: str
    at: float | None
    findings: list[FindingAnswer]


class SourceLag(Struct, kw_only=True, frozen=True):
    """How far a source with a pace is behind, in its latest subtask. `catch_up_s` is null while it falls back."""

    operator: str
    subtask: int
    lag_s: float
    growth: float
    catch_up_s: float | None


class CheckpointAnswer(Struct, kw_only=True, frozen=True):
    """A checkpoint that has ended. `start_delay_s`, `alignment_s`, `sync_s` and `async_s` are the largest of its tasks,
    `slowest` is the task that completed last."""

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
    """The counters of a job without those of its tasks. `docs/reference/metrics.md` says what they mean."""

    at: float | None
    attempt: int
    metrics: dict[str, Any]


class SeriesPoints(Struct, kw_only=True, frozen=True):
    """A time series. A point is `[begin, least, mean, largest]`; `begin` is seconds since the epoch."""

    name: str
    points: list[tuple[float, float, float, float]]


class SeriesAnswer(Struct, kw_only=True, frozen=True):
    """Time series, or the names of those that there are. `total` is how many names match."""

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
    checkpoints: list[CheckpointAnswer]
