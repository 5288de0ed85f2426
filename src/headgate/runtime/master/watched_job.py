"""`WatchedJob`: the view of a job for its web page. It outlives the job, and then holds only the job's last values."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol

from headgate.errors import HeadgateError, ProfileError, TraceError
from headgate.observe.channel_trace import ChannelTrace
from headgate.observe.finding import Finding
from headgate.observe.history import Point
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.profile import Profile
from headgate.observe.topology import Topology
from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
from headgate.runtime.master.channel_traces import ChannelTraces
from headgate.runtime.master.job_metrics import Metrics
from headgate.runtime.master.job_monitor import JobMonitor
from headgate.runtime.master.job_state import JobState
from headgate.runtime.master.profiles import Profiles
from headgate.web.job_view import JobFacts


class RunningJob(Protocol):
    """The attributes and methods of a JobMaster that the view reads."""

    state: JobState
    error: HeadgateError | None
    restarts: int
    started_at: float | None
    traces: ChannelTraces
    profiles: Profiles

    def metrics(self) -> Metrics: ...
    def checkpoints(self) -> list[CheckpointRecord]: ...


class WatchedJob:
    """A `JobView` of one job. While the job runs, the view asks the JobMaster.

    `end` stores the last values, and drops the JobMaster, which keeps the user's functions and rows alive.
    """

    def __init__(self, run: str, name: str, monitor: JobMonitor, job: RunningJob) -> None:
        self._run = run
        self._name = name
        self._monitor = monitor
        self._job: _Running | _Ended = _Running(job)

    def end(self) -> None:
        """Store the job's last values, and drop the JobMaster."""
        self._monitor.settle()
        self._job = _Ended(self._job)

    @property
    def nbytes(self) -> int:
        return self._monitor.nbytes

    @property
    def id(self) -> str:
        return self._run

    @property
    def name(self) -> str:
        return self._name

    @property
    def topology(self) -> Topology:
        return self._monitor.topology

    @property
    def options(self) -> Mapping[str, str]:
        return self._monitor.options

    @property
    def versions(self) -> Mapping[str, str]:
        return self._monitor.versions

    def facts(self) -> JobFacts:
        return self._job.facts()

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        return self._monitor.snapshots()

    def metrics(self) -> Mapping[str, Any]:
        return self._job.metrics()

    def diagnose(self) -> Sequence[Finding]:
        return self._monitor.latest_findings()

    def series_names(self) -> Sequence[str]:
        return self._monitor.series_names()

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        return self._monitor.series(name, begin, end)

    def checkpoints(self) -> Sequence[CheckpointRecord]:
        return self._job.checkpoints()

    def trace_channel(self, exchange: str, producer: int, consumer: int, seconds: float) -> Future[ChannelTrace]:
        return self._job.trace_channel(exchange, producer, consumer, seconds)

    def profile(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        return self._job.profile(operator, subtask, seconds)

    def last_profile(self) -> Profile | None:
        return self._job.last_profile()

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        self._monitor.save_recording(path)


class _Running:
    """The values of a running job, which the view reads from the JobMaster."""

    def __init__(self, job: RunningJob) -> None:
        self._job = job
        self.metrics, self.checkpoints = job.metrics, job.checkpoints
        self.trace_channel, self.profile = job.traces.ask, job.profiles.ask

    def last_profile(self) -> Profile | None:
        return self._job.profiles.last

    def facts(self) -> JobFacts:
        job = self._job
        error = None if job.error is None else f"{type(job.error).__name__}: {job.error}"
        return JobFacts(
            state=job.state.value, started_at=job.started_at, ended_at=None, restarts=job.restarts, error=error
        )


class _Ended:
    """The last values of an ended job, which the view keeps."""

    def __init__(self, job: _Running | _Ended) -> None:
        self._facts = replace(job.facts(), ended_at=time.time())
        self._metrics, self._checkpoints = job.metrics(), job.checkpoints()
        self._profile = job.last_profile()

    def facts(self) -> JobFacts:
        return self._facts

    def metrics(self) -> Metrics:
        return self._metrics

    def checkpoints(self) -> list[CheckpointRecord]:
        return self._checkpoints

    def trace_channel(self, exchange: str, producer: int, consumer: int, seconds: float) -> Future[ChannelTrace]:
        raise TraceError(f"channel {exchange!r}, {producer} to {consumer} could not be traced: its job has ended")

    def profile(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        raise ProfileError(f"{operator}[{subtask}] could not be profiled: its job has ended")

    def last_profile(self) -> Profile | None:
        return self._profile
