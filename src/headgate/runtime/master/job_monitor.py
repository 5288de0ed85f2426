"""`JobMonitor`: collects the metrics of a running job on the driver, diagnoses the job, and logs warnings about it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from headgate.config import Config
from headgate.errors import HeadgateError, JobCancelled, RecordingError, Superseded
from headgate.observe.diagnosis import LATEST, diagnose, latest_window, while_tasks_ran
from headgate.observe.finding import Finding
from headgate.observe.history import History, Point
from headgate.observe.levels import backpressure
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.metrics_window import Window
from headgate.observe.recording import Recorder, recordings_folder, write_recording
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
from headgate.runtime.process_identity import process_identity
from headgate.runtime.processor_limits import ProcessorLimits

log = logging.getLogger(__name__)

#: Seconds between two snapshots.
PERIOD: Final = 1.0
#: If the diagnosis of each snapshot used a larger share of a processor, the monitor diagnoses only some snapshots: one
#: each `_LONGEST_PAUSE` seconds at least.
_SHARE: Final = 0.005
_LONGEST_PAUSE: Final = 3.0
#: The recording of a failed job is saved only if it has at least this many snapshots. One alone says nothing about
#: speed.
_WORTH_RECORDING: Final = 2
_T = TypeVar("_T")


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
        own_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._name = name
        self._config = config
        self.topology = topology_of(name, graph)
        self._functions = functions
        self._hot_keys = hot_keys
        self._clock = clock
        self._own_time = own_time
        self._limits = ProcessorLimits()
        self._late_rows = LateRowWarnings(graph)
        self._told = ToldFindings(name)
        #: Until this time, the monitor diagnoses only on request.
        self._next_look = 0.0
        self._lock = threading.Lock()
        self._snapshots: deque[MetricsSnapshot] = deque(maxlen=LATEST)
        self._history = History()
        self._recorder = Recorder()
        #: The last diagnosed snapshot, and its findings. Several callers may ask before the next snapshot.
        self._diagnosed: tuple[MetricsSnapshot, list[Finding]] | None = None
        #: The findings of a job that is over. They keep the lines of its functions, which a running job soon outdates.
        self._settled: list[Finding] | None = None
        self._is_over = False
        self._has_told_of_bug = False

    def on_report(self, attempt: Attempt, metrics: Callable[[], Metrics]) -> None:
        """Handle a TaskManager's report. `metrics` returns the job's counters.

        All TaskManagers report several times a second, so only one report in each period counts.
        """
        now = self._clock()
        is_due = not self._snapshots or abs(now - self._snapshots[-1].at) >= PERIOD
        if is_due and attempt.has_reported:
            reports = attempt.reports()  # adding up all their counters takes longer than to look for late rows
            if any(row.get("late_rows") for report in reports for row in report["operators"]):
                self._unless_it_fails(lambda: self._late_rows.update(metrics, ended=False), None)
            self._take(now, attempt, reports)

    def on_end(self, attempt: Attempt, metrics: Callable[[], Metrics]) -> None:
        """Handle the end of the last attempt."""
        self._unless_it_fails(lambda: self._late_rows.update(metrics, ended=True), None)
        self._functions.close()
        self._hot_keys.close()
        self._is_over = True
        self._unless_it_fails(lambda: self._take_last(attempt), None)

    def settle(self) -> None:
        """Keep the last diagnosis, and only the snapshots of the last window. No more snapshots will come."""
        findings: list[Finding] = self._unless_it_fails(self.diagnose, [])
        self._settled = findings
        window = self._unless_it_fails(self._window, None)
        times = {each[-1].at for each in (self._latest(), self._lately()) if each}
        times |= set() if window is None else {window.begin}
        with self._lock:
            kept = [each for each in self._snapshots if each.at in times]
            self._snapshots.clear()
            self._snapshots.extend(kept)

    @property
    def nbytes(self) -> int:
        """About the memory of all that is kept, in bytes."""
        with self._lock:
            snapshots = (len(self._snapshots) + 1) * self._recorder.snapshot_nbytes  # one more in the job's metrics
            return self._history.nbytes + self._recorder.nbytes + snapshots

    def _snapshot(self, at: float, attempt: Attempt, reports: Sequence[Metrics]) -> MetricsSnapshot:
        driver = {
            "host": attempt.host,
            "clock_s": time.monotonic(),
            **process_identity(),
            "cpu_s": time.process_time(),
            **self._limits.read(),
        }
        return MetricsSnapshot(at=at, attempt=attempt.credentials.attempt, reports=reports, driver=driver)

    def _take(self, at: float, attempt: Attempt, reports: Sequence[Metrics]) -> None:
        self._unless_it_fails(lambda: self._keep(self._snapshot(at, attempt, reports), is_recorded=True), None)
        if not self._next_look - _LONGEST_PAUSE <= at < self._next_look:  # also after a clock that went back
            began = self._own_time()
            self._unless_it_fails(lambda: self._look(self.diagnose(), at), None)
            self._next_look = at + min((self._own_time() - began) / _SHARE, _LONGEST_PAUSE)

    def _take_last(self, attempt: Attempt) -> None:
        """Take what TaskManagers have reported since the last snapshot, however short that is ago.

        The recording does without a snapshot in which all tasks have ended: a diagnosis finds nothing in it.
        """
        before, reports = self._snapshots[-1] if self._snapshots else None, attempt.reports()
        is_new = before is None or any(one is not other for one, other in zip(before.reports, reports, strict=False))
        if not attempt.has_reported or not is_new:
            return
        last = self._snapshot(self._clock(), attempt, reports)
        self._keep(last, is_recorded=bool(while_tasks_ran([last])))

    def _keep(self, snapshot: MetricsSnapshot, *, is_recorded: bool) -> None:
        with self._lock:
            before = self._snapshots[-1] if self._snapshots else None
            self._snapshots.append(snapshot)
            self._history.record(snapshot.at, series_of(before, snapshot))
            if is_recorded:
                self._recorder.add(snapshot)

    def _look(self, findings: Sequence[Finding], at: float) -> None:
        for line in self._told.lines(findings, at):
            log.warning("%s", line)
        self._functions.look(findings, at)
        self._hot_keys.look(findings, at)

    def _unless_it_fails(self, work: Callable[[], _T], otherwise: _T) -> _T:
        """Return the result of `work`, or `otherwise` if it raises: a bug here must not end the job."""
        try:
            return work()
        except Exception:
            if not self._has_told_of_bug:
                self._has_told_of_bug = True
                log.exception(
                    "job %r goes on, but it cannot be diagnosed or recorded, which is a bug of Headgate", self._name
                )
            return otherwise

    def diagnose(self) -> list[Finding]:
        """Return the places that limit the job's throughput now, the worst first: those of the latest snapshot."""
        if self._settled is not None:
            return list(self._settled)
        latest = self._lately()
        if not latest:
            return []
        if self._diagnosed is None or self._diagnosed[0] is not latest[-1]:
            self._diagnosed = latest[-1], self._unless_it_fails(lambda: diagnose(self.topology, latest), [])
        return self._explained(self._diagnosed[1])

    def latest_findings(self) -> list[Finding]:
        """Return the findings of the last snapshot that was diagnosed. The page asks for them each second.

        The monitor diagnoses a snapshot at least each `_LONGEST_PAUSE` seconds, so no later snapshot is more than that
        newer, except the one that the monitor diagnoses at this moment: the page need not do so, too. At the start of
        an attempt the job is diagnosed now. This costs little, because there is no window yet.
        """
        diagnosed, latest = self._diagnosed, self._lately()
        is_settled = self._settled is not None
        if is_settled or diagnosed is None or not latest or diagnosed[0].attempt != latest[-1].attempt:
            return self.diagnose()
        return self._explained(diagnosed[1])

    def _explained(self, findings: Sequence[Finding]) -> list[Finding]:
        now = self._clock()
        return self._hot_keys.explained(self._functions.explained(findings, now), now)

    def backpressure(self) -> list[dict[str, Any]]:
        """Return the back-pressure of each vertex in the last seconds, see `levels.backpressure`."""
        window = self._window()
        return [] if window is None else backpressure(window)

    def busiest_subtask(self, vertex: int, operator: int) -> int:
        """Return the subtask in which an operator worked most in the last seconds, or 0 if this is not known."""
        window = self._window()
        tasks = [] if window is None else window.of(vertex)
        return max(tasks, key=lambda task: task.operators[operator].busy).subtask if tasks else 0

    def worst_channel(self, exchange: str, producer: int | None, consumer: int | None) -> tuple[int, int]:
        """Return (producer, consumer) of the exchange's channel that has waited most in the last seconds.

        If `producer` or `consumer` is given, only its channels are compared. If no such channel is known, the number
        that is not given is 0.
        """
        window = self._window()
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
            lines = self._recorder.lines
        # The job's thread and the page need the lock, so the file is written without it.
        write_recording(path, lines, self.topology, {"options": self.options, "versions": self.versions})

    def save_failure(self, error: HeadgateError, run: str) -> list[str]:
        """Save a recording of a job that has ended with an error. Returns one message, which names the file.

        For a job that was cancelled, was taken over or ran for less than about two seconds, saves nothing and returns
        no message.
        """
        if isinstance(error, JobCancelled | Superseded) or len(self._lately()) < _WORTH_RECORDING:
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

    def _lately(self) -> Sequence[MetricsSnapshot]:
        """Return the snapshots that say what the job does. Of a job that is over, they say what it did at last."""
        return while_tasks_ran(self._latest()) if self._is_over else self._latest()

    def _window(self) -> Window | None:
        return latest_window(self.topology, self._lately())
