"""`JobMonitor`: collects the metrics of a running job on the driver, diagnoses the job, and logs warnings about it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from headgate.config import Config
from headgate.errors import HeadgateError, JobCancelled, RecordingError, Superseded
from headgate.observe.diagnosis import LATEST, diagnose, latest_window
from headgate.observe.finding import Finding
from headgate.observe.history import History, Point
from headgate.observe.levels import backpressure
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.recording import Recorder, recordings_folder
from headgate.observe.series import series_of
from headgate.observe.topology import topology_of
from headgate.plan.job_graph import JobGraph
from headgate.runtime.compiled import versions
from headgate.runtime.master.attempt import Attempt
from headgate.runtime.master.hot_keys import HotKeys
from headgate.runtime.master.job_metrics import Metrics
from headgate.runtime.master.late_rows import LateRowWarnings
from headgate.runtime.master.slow_functions import SlowFunctions
from headgate.runtime.master.told_findings import ToldFindings

log = logging.getLogger(__name__)

#: Seconds between two snapshots.
PERIOD: Final = 1.0
#: The recording of a failed job is saved only if it has at least this many snapshots.
_WORTH_RECORDING: Final = 10


class JobMonitor:
    """The monitor of one job. The job's thread calls `on_report` and `on_end`. Any thread may call the other methods.

    `_lock` protects the snapshots, the history and the recorder.
    """

    def __init__(
        self,
        name: str,
        graph: JobGraph,
        config: Config,
        *,
        functions: SlowFunctions,
        hot_keys: HotKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._config = config
        self.topology = topology_of(name, graph)
        self._functions = functions
        self._hot_keys = hot_keys
        self._clock = clock
        self._late_rows = LateRowWarnings(graph)
        self._told = ToldFindings(name)
        self._lock = threading.Lock()
        self._snapshots: deque[MetricsSnapshot] = deque(maxlen=LATEST)
        self._history = History()
        self._recorder = Recorder()
        #: The last diagnosed snapshot, and its findings. Several callers may ask before the next snapshot.
        self._diagnosed: tuple[MetricsSnapshot, list[Finding]] | None = None

    def on_report(self, attempt: Attempt, metrics: Callable[[], Metrics]) -> None:
        """Handle a TaskManager's report. `metrics` returns the job's counters.

        All TaskManagers report several times a second, so only one report in each period counts.
        """
        now = self._clock()
        is_due = not self._snapshots or abs(now - self._snapshots[-1].at) >= PERIOD
        if is_due and attempt.has_reported:
            self._late_rows.update(metrics, ended=False)
            self._take(MetricsSnapshot(at=now, attempt=attempt.credentials.attempt, reports=attempt.reports()))

    def on_end(self, metrics: Callable[[], Metrics]) -> None:
        self._late_rows.update(metrics, ended=True)
        self._functions.close()
        self._hot_keys.close()

    def settle(self) -> None:
        """Keep the last diagnosis, and only the snapshots of the last window. No more snapshots will come."""
        self.diagnose()
        with self._lock:
            window = latest_window(self.topology, tuple(self._snapshots))
            times = {self._snapshots[-1].at} if self._snapshots else set()
            times |= set() if window is None else {window.begin}
            kept = [each for each in self._snapshots if each.at in times]
            self._snapshots.clear()
            self._snapshots.extend(kept)

    @property
    def nbytes(self) -> int:
        """About the memory of all that is kept, in bytes."""
        with self._lock:
            snapshots = (len(self._snapshots) + 1) * self._recorder.snapshot_nbytes  # one more in the job's metrics
            return self._history.nbytes + self._recorder.nbytes + snapshots

    def _take(self, snapshot: MetricsSnapshot) -> None:
        with self._lock:
            before = self._snapshots[-1] if self._snapshots else None
            self._snapshots.append(snapshot)
            self._history.record(snapshot.at, series_of(before, snapshot))
            self._recorder.add(snapshot)
        findings = self.diagnose()
        for line in self._told.lines(findings, snapshot.at):
            log.warning("%s", line)
        self._functions.look(findings, snapshot.at)
        self._hot_keys.look(findings, snapshot.at)

    def diagnose(self) -> list[Finding]:
        """Return the places that limit the job's throughput now, the worst first."""
        latest = self._latest()
        if not latest:
            return []
        if self._diagnosed is None or self._diagnosed[0] is not latest[-1]:
            self._diagnosed = latest[-1], diagnose(self.topology, latest)
        now = self._clock()
        return self._hot_keys.explained(self._functions.explained(self._diagnosed[1], now), now)

    def backpressure(self) -> list[dict[str, Any]]:
        """Return the back-pressure of each vertex in the last seconds, see `levels.backpressure`."""
        window = latest_window(self.topology, self._latest())
        return [] if window is None else backpressure(window)

    def busiest_subtask(self, vertex: int, operator: int) -> int:
        """Return the subtask in which an operator worked most in the last seconds, or 0 if this is not known."""
        window = latest_window(self.topology, self._latest())
        tasks = [] if window is None else window.of(vertex)
        return max(tasks, key=lambda task: task.operators[operator].busy).subtask if tasks else 0

    def worst_channel(self, exchange: str, producer: int | None, consumer: int | None) -> tuple[int, int]:
        """Return (producer, consumer) of the exchange's channel that has waited most in the last seconds.

        If `producer` or `consumer` is given, only its channels are compared. If no such channel is known, the number
        that is not given is 0.
        """
        window = latest_window(self.topology, self._latest())
        found = [
            each
            for each in (() if window is None else window.channels.of(exchange))
            if producer in {None, each.producer} and consumer in {None, each.consumer}
        ]
        if not found:
            return producer or 0, consumer or 0
        worst = max(found, key=lambda each: (each.waited, each.backlog or 0))
        return worst.producer, worst.consumer

    def snapshots(self) -> Sequence[MetricsSnapshot]:
        """Return the latest snapshots, the oldest first."""
        return self._latest()

    def series_names(self) -> Sequence[str]:
        """Return the names of the time series, the oldest first."""
        with self._lock:
            return self._history.names

    def series(self, name: str, begin: float, end: float) -> Sequence[Point]:
        """Return the points of a time series from `begin` to before `end`, in seconds since the epoch."""
        with self._lock:
            return self._history.points(name, begin, end)

    @property
    def options(self) -> dict[str, str]:
        """The job's options that differ from their defaults, as text without secrets."""
        return self._config.shown()

    @property
    def versions(self) -> dict[str, str]:
        return versions()

    def save_recording(self, path: str | os.PathLike[str]) -> None:
        """Write the last ten minutes to a file. Raises RecordingError."""
        with self._lock:
            self._recorder.save(path, self.topology, {"options": self.options, "versions": self.versions})

    def save_failure(self, error: HeadgateError, run: str) -> list[str]:
        """Save a recording of a job that has ended with an error. Returns one message, which names the file.

        For a job that was cancelled, was taken over or ran only for a few seconds, saves nothing and returns no
        message.
        """
        if isinstance(error, JobCancelled | Superseded) or len(self._latest()) < _WORTH_RECORDING:
            return []
        try:
            path = recordings_folder() / f"{run}.recording"
            self.save_recording(path)
        except (OSError, RecordingError) as problem:
            log.warning("job %r: its last minutes could not be saved: %s", self._name, problem)
            return []
        return [f"its last minutes are in {path}, which `headgate doctor` reads"]

    def _latest(self) -> Sequence[MetricsSnapshot]:
        with self._lock:
            return tuple(self._snapshots)
