"""What the page may know of a job. The runtime implements it; this package imports no runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headgate.observe.finding import Finding
from headgate.observe.history import Point
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job's state now. Times are in seconds since the epoch.

    `started_at` is None until the tasks run, `ended_at` until nothing of the job runs any more.
    """

    state: str
    started_at: float | None
    ended_at: float | None
    restarts: int
    error: str | None


class CheckpointView(Protocol):
    """The outcome of a checkpoint, see `CheckpointRecord`."""

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
    """A job as the page sees it. Any thread may call all methods, also after the job's end."""

    @property
    def id(self) -> str:
        """What tells the job from others of its program; it needs no escaping in an address."""

    @property
    def name(self) -> str: ...

    @property
    def topology(self) -> Topology: ...

    @property
    def options(self) -> Mapping[str, str]:
        """The options that differ from their defaults, without secrets."""

    @property
    def versions(self) -> Mapping[str, str]: ...

    def facts(self) -> JobFacts:
        """Return the job's state now."""

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        """Return the latest snapshots, the oldest first."""

    def metrics(self) -> Mapping[str, Any]:
        """Return the job's counters, see `docs/reference/metrics.md`."""

    def diagnose(self) -> Sequence[Finding]:
        """Return what holds the job up, the worst first."""

    def series_names(self) -> Sequence[str]:
        """Return the names of the time series."""

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        """Return the points of a time series from `begin` to before `end`. Empty for an unknown name."""

    def checkpoints(self) -> Sequence[CheckpointView]:
        """Return the last checkpoints, in the order in which they ended."""

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        """Write the last ten minutes to a file. Raises RecordingError."""
