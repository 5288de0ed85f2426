"""`RecordedJob`: the job of a recording as its page sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

from headgate.errors import ProfileError, RecordingError, TraceError
from headgate.observe.channel_trace import ChannelTrace
from headgate.observe.diagnosis import LATEST, diagnose, while_tasks_ran
from headgate.observe.finding import Finding
from headgate.observe.history import History, Point
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.profile import Profile
from headgate.observe.recording import Recording
from headgate.observe.series import series_of
from headgate.observe.topology import Topology
from headgate.web.job_view import RECORDED, CheckpointView, JobFacts


class RecordedJob:
    """A `JobView` of a recording's last moment. A recording does not say how the job ended."""

    id = "recording"

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._snapshots = recording.snapshots
        self._history = History()
        for before, after in pairwise([None, *self._snapshots]):
            assert after is not None
            self._history.record(after.at, series_of(before, after))

    @property
    def name(self) -> str:
        return self.topology.job

    @property
    def topology(self) -> Topology:
        return self._recording.topology

    @property
    def options(self) -> Mapping[str, str]:
        options: Mapping[str, str] = self._recording.facts.get("options", {})
        return options

    @property
    def versions(self) -> Mapping[str, str]:
        versions: Mapping[str, str] = self._recording.facts.get("versions", {})
        return versions

    @property
    def nbytes(self) -> int:
        return self._history.nbytes

    def facts(self) -> JobFacts:
        times = [each.at for each in self._snapshots]
        return JobFacts(
            state=RECORDED,
            started_at=times[0] if times else None,
            ended_at=times[-1] if times else 0.0,
            restarts=0,
            error=None,
        )

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        return self._snapshots[-LATEST:]

    def metrics(self) -> Mapping[str, Any]:
        return {}

    def diagnose(self) -> Sequence[Finding]:
        return diagnose(self.topology, while_tasks_ran(self.snapshots()))

    def series_names(self) -> Sequence[str]:
        return self._history.names

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        return self._history.points(name, begin, end)

    def checkpoints(self) -> Sequence[CheckpointView]:
        return ()

    def trace_channel(self, exchange: str, producer: int, consumer: int, seconds: float) -> Future[ChannelTrace]:
        raise TraceError(f"channel {exchange!r}, {producer} to {consumer} cannot be traced: its job was recorded")

    def profile(self, operator: str, subtask: int, seconds: float) -> Future[Profile]:
        raise ProfileError(f"{operator}[{subtask}] cannot be profiled: its job was recorded")

    def last_profile(self) -> Profile | None:
        return None

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        raise RecordingError(f"{os.fspath(path)} is not written: this is a recording already")
