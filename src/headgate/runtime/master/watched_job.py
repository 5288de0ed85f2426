"""`WatchedJob`: a job as its page sees it, which outlives the job without keeping what the job needed."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate.observe.finding import Finding
from headgate.observe.history import Point
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.topology import Topology
from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
from headgate.runtime.master.job_metrics import Metrics
from headgate.runtime.master.job_monitor import JobMonitor
from headgate.web.job_view import JobFacts


class WatchedJob:
    """A `JobView`. While the job runs, it asks the JobMaster. `end` keeps the last answers and lets the JobMaster go,
    which holds the user's functions and rows."""

    def __init__(
        self,
        run: str,
        name: str,
        monitor: JobMonitor,
        *,
        facts: Callable[[], JobFacts],
        metrics: Callable[[], Metrics],
        checkpoints: Callable[[], Sequence[CheckpointRecord]],
    ) -> None:
        self._run = run
        self._name = name
        self._monitor = monitor
        self._facts, self._metrics, self._checkpoints = facts, metrics, checkpoints

    def end(self) -> None:
        """Keep the job's last values."""
        facts = dataclasses.replace(self._facts(), ended_at=time.time())
        metrics, checkpoints = self._metrics(), list(self._checkpoints())
        self._metrics, self._checkpoints = lambda: metrics, lambda: checkpoints
        self._facts = lambda: facts

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
        return self._facts()

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        return self._monitor.snapshots()

    def metrics(self) -> Mapping[str, Any]:
        return self._metrics()

    def diagnose(self) -> Sequence[Finding]:
        return self._monitor.diagnose()

    def series_names(self) -> Sequence[str]:
        return self._monitor.series_names()

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        return self._monitor.series(name, begin, end)

    def checkpoints(self) -> Sequence[CheckpointRecord]:
        return self._checkpoints()

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        self._monitor.save_recording(path)
