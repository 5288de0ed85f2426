"""The interface through which the page reads a job. The runtime implements it, so this package needs no runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headgate.observe.channel_trace import ChannelTrace
from headgate.observe.finding import Finding
from headgate.observe.history import Point
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.profile import Profile
from headgate.observe.topology import Topology

#: The state of a job that is known from a recording.
RECORDED: Final = "RECORDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job's state now. Times are in seconds since the epoch.

    `started_at` is None until the tasks run. `ended_at` is None until no part of the job runs any more.
    """

    state: str
    started_at: float | None
    ended_at: float | None
    restarts: int
    error: str | None


class CheckpointView(Protocol):
    """The result of a checkpoint. `CheckpointRecord` describes the attributes."""

    @property
    def checkpoint(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def triggered_at(self) -> float: ...
    @property
    def duration(self) -> float: ...
    @property
    def size(self) -> int: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def parts(self) -> Mapping[str, Mapping[str, Any]]: ...


class JobView(Protocol):
    """A job as the page sees it. Any thread may call any method, even after the job's end."""

    @property
    def id(self) -> str:
        """The id of the job, unique in its program. It has only characters that a URL path may contain."""

    @property
    def name(self) -> str: ...

    @property
    def topology(self) -> Topology: ...

    @property
    def options(self) -> Mapping[str, str]:
        """The options that differ from their defaults, without secrets."""

    @property
    def versions(self) -> Mapping[str, str]: ...

    @property
    def nbytes(self) -> int:
        """About the memory that its history, recording and snapshots take, in bytes."""

    def facts(self) -> JobFacts:
        """Return the job's state now."""

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        """Return the latest snapshots, the oldest first."""

    def metrics(self) -> Mapping[str, Any]:
        """Return the job's counters. `docs/reference/metrics.md` describes them."""

    def diagnose(self) -> Sequence[Finding]:
        """Return the places that limit the job's throughput, the worst first.

        A request waits for the answer, so a running job returns its last diagnosis, which may be some seconds old.
        """

    def series_names(self) -> Sequence[str]:
        """Return the names of the time series."""

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        """Return the points of a time series that begin at `begin` or later and before `end`.

        An unknown series has no points. Times are in seconds since the epoch.
        """

    def checkpoints(self) -> Sequence[CheckpointView]:
        """Return the last checkpoints, in the order in which they ended."""

    def trace_channel(self, exchange: str, producer: int, consumer: int, seconds: float) -> Future[ChannelTrace]:
        """Trace a channel for `seconds` seconds. Raises TraceError if there is no such channel, or no running job.

        If the trace fails later, the future raises TraceError.
        """

    def profile(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        """Profile a subtask of an operator for `seconds` seconds. Raises ProfileError if there is no such subtask, or
        no running job.

        If the profile fails later, the future raises ProfileError.
        """

    def last_profile(self) -> Profile | None:
        """Return the last profile that was complete, whoever asked for it."""

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        """Write the last ten minutes to a file. Raises RecordingError."""
