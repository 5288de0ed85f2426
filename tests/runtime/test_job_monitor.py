"""The monitor of a job on the driver, without the job."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import count as count_from
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe.diagnosis import diagnose
from headgate.observe.finding import Finding
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.profile import Profile
from headgate.observe.recording import read_recording
from headgate.observe.topology import Topology, topology_of
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.runtime.master.hot_keys import HotKeys
from headgate.runtime.master.job_monitor import JobMonitor
from headgate.runtime.master.slow_functions import SlowFunctions
from headgate.runtime.master.task_requests import TaskRequests
from headgate.runtime.master.watched_job import WatchedJob
from tests.observe.made_metrics import Tasks, snapshots
from tests.runtime.test_slow_functions import profile

#: A source that waits for a slow sink, by vertex and subtask.
SLOW: Tasks = {
    (0, 0): {"soft_backpressured_s": 0.9, "busy_s": 0.1, "cpu_s": 0.05, "rows": 100},
    (1, 0): {"busy_s": 1.0, "cpu_s": 0.01, "rows": 100, "batches": 3},
}


class Watched:
    """A monitor of a job that never ran: each call of `report` is a report of all TaskManagers, a second later."""

    def __init__(self, count: int = 12, *, cost: float = 0.0) -> None:
        """`cost` are the processor seconds of each diagnosis."""
        env = hg.StreamEnvironment(parallelism=1)
        source = hg.sources.generate(lambda start, rows: pa.record_batch({"n": range(start, start + rows)}),
                                     schema=pa.schema({"n": pa.int64()}))  # fmt: skip
        env.from_source(source).rebalance().sink_to(hg.sinks.null())
        self.graph: JobGraph = build_job_graph(env._jobs.graph.graph(env._jobs.pending))
        self.made: list[MetricsSnapshot] = snapshots(topology_of("job", self.graph), SLOW, count=count)
        self.now, self._reports = 1000.0, list(self.made[0].reports)
        self.profile: Future[Profile] = Future()
        self._readings = count_from(0)
        self.attempt: Any = SimpleNamespace(
            has_reported=True, credentials=SimpleNamespace(attempt=0), reports=lambda: list(self._reports),
            host="127.0.0.1",
        )  # fmt: skip
        self.monitor = JobMonitor(
            "job", self.graph, hg.Config(), functions=SlowFunctions(lambda *_: self.profile),
            hot_keys=HotKeys(self.graph, lambda subtask: subtask, TaskRequests()), clock=lambda: self.now,
            own_time=lambda: cost * next(self._readings),
        )  # fmt: skip

    def report(self, snapshot: MetricsSnapshot) -> None:
        self.now, self._reports = snapshot.at, list(snapshot.reports)
        self.monitor.on_report(self.attempt, self.metrics)

    def finish(self, seconds: float) -> None:
        """All tasks end so many seconds after the last report: their final counters come with their end."""
        last = self.made[-1].reports[0]
        ended = {**last, "clock_s": last["clock_s"] + seconds,
                 "tasks": [{**task, "ended": True} for task in last["tasks"]],
                 "operators": [{**row, "rows_in": row["rows_in"] + 7} for row in last["operators"]]}  # fmt: skip
        self.now, self._reports = self.now + seconds, [ended]
        self.monitor.on_end(self.attempt, self.metrics)

    def metrics(self) -> dict[str, Any]:
        return {"operators": {}}


@pytest.mark.parametrize(("cost", "every"), [(0.001, 1), (0.009, 2), (0.5, 3)])
def test_a_diagnosis_that_costs_much_is_made_less_often(
    monkeypatch: pytest.MonkeyPatch, cost: float, every: int
) -> None:
    """It takes half a hundredth of a processor at most, and comes each three seconds at least."""
    watched = Watched(count=20, cost=cost)
    looked: list[float] = []
    monkeypatch.setattr(watched.monitor, "_look", lambda _findings, at: looked.append(at))
    for each in watched.made:
        watched.report(each)
    assert looked == [each.at for each in watched.made[::every]]


@pytest.mark.parametrize(("cost", "oldest"), [(0.001, 0.0), (0.009, 1.0), (0.5, 2.0)])
def test_the_page_has_the_findings_of_the_monitor_and_diagnoses_nothing_itself(
    monkeypatch: pytest.MonkeyPatch, cost: float, oldest: float
) -> None:
    """They are three seconds old at most, and also there while the monitor diagnoses the next snapshot."""
    watched = Watched(count=20, cost=cost)
    finding, *_ = diagnose(watched.monitor.topology, watched.made)
    diagnosed: list[float] = []

    def shown() -> float:
        """The time of the snapshot that the page's findings describe."""
        before = diagnosed[:]
        (found,) = watched.monitor.latest_findings()
        assert diagnosed == before
        return float(found.place)

    def noted(_topology: Topology, latest: Sequence[MetricsSnapshot]) -> list[Finding]:
        diagnosed.append(latest[-1].at)
        assert len(diagnosed) == 1 or shown() == diagnosed[-2]
        return [replace(finding, place=str(latest[-1].at))]

    monkeypatch.setattr("headgate.runtime.master.job_monitor.diagnose", noted)
    ages = []
    for each in watched.made:
        watched.report(each)
        ages.append(each.at - shown())
    assert max(ages) == oldest


def test_a_program_that_asks_has_the_findings_of_the_latest_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(cost=0.5)
    diagnosed: list[float] = []

    def noted(topology: Topology, latest: Sequence[MetricsSnapshot]) -> list[Finding]:
        diagnosed.append(latest[-1].at)
        return diagnose(topology, latest)

    monkeypatch.setattr("headgate.runtime.master.job_monitor.diagnose", noted)
    for each in watched.made[:6]:
        watched.report(each)
    assert watched.monitor.latest_findings()
    assert diagnosed == [1000.0, 1003.0]
    assert watched.monitor.diagnose()
    assert diagnosed == [1000.0, 1003.0, 1005.0]


def test_the_page_has_no_findings_of_the_attempt_before() -> None:
    watched = Watched(cost=0.5)
    for each in watched.made[:11]:
        watched.report(each)
    assert watched.monitor.latest_findings()
    watched.attempt.credentials.attempt = 1
    watched.report(watched.made[11])
    assert watched.monitor.latest_findings() == []


def test_the_view_of_the_page_has_the_last_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(cost=0.5)
    for each in watched.made[:11]:
        watched.report(each)
    job: Any = SimpleNamespace(
        metrics=dict, checkpoints=list, traces=SimpleNamespace(ask=None), profiles=SimpleNamespace(ask=None, last=None)
    )
    view = WatchedJob("run", "job", watched.monitor, job)
    monkeypatch.setattr(watched.monitor, "diagnose", pytest.fail)
    assert view.diagnose()


class Unsummed:
    """Warnings of late rows that cannot be made."""

    def update(self, *_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")


def test_the_last_snapshot_of_a_job_has_its_final_counters_and_the_diagnosis_of_the_time_before() -> None:
    watched = Watched()
    for each in watched.made:
        watched.report(each)
    before, pressure = watched.monitor.diagnose(), watched.monitor.backpressure()
    assert before
    watched.finish(0.3)
    watched.monitor.settle()
    first, *_, last = watched.monitor.snapshots()
    assert last.at == watched.made[-1].at + 0.3
    assert last.reports[0]["operators"][0]["rows_in"] == 1100 + 7
    assert first.at == watched.made[-1].at - 3.0
    assert watched.monitor.diagnose() == watched.monitor.latest_findings() == before
    assert watched.monitor.backpressure() == pressure
    name = next(each for each in watched.monitor.series_names() if each.endswith("/rows_in"))
    assert watched.monitor.series(name, last.at - 1.5, last.at + 1)[-1].mean == pytest.approx((100 + 7 / 0.3) / 2, 0.5)


def test_the_lines_of_a_slow_function_stay_after_the_job_has_ended() -> None:
    watched = Watched()
    for each in watched.made[:-1]:
        watched.report(each)
    (operator,) = {finding.operator for finding in watched.monitor.diagnose()}
    watched.profile.set_result(profile(str(operator), 0))
    watched.report(watched.made[-1])
    before = watched.monitor.diagnose()
    assert before[0].hottest
    watched.finish(0.3)
    watched.monitor.settle()
    watched.now += 3600
    assert watched.monitor.diagnose() == before


def test_a_job_that_ends_within_a_second_has_its_counters_and_nothing_new_is_no_snapshot() -> None:
    watched = Watched(count=1)
    watched.finish(0.3)
    watched.monitor.on_end(watched.attempt, watched.metrics)
    watched.monitor.settle()
    (last,) = watched.monitor.snapshots()
    assert last.reports[0]["operators"][0]["rows_in"] == 7
    assert watched.monitor.diagnose() == []


def test_a_diagnosis_that_fails_is_logged_once_and_does_not_end_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("headgate.runtime.master.job_monitor.diagnose", fails)
    watched = Watched()
    with caplog.at_level(logging.ERROR):
        for each in watched.made:
            watched.report(each)
        monkeypatch.setattr("headgate.runtime.master.job_monitor.latest_window", fails)
        watched.finish(0.3)
        watched.monitor.settle()
    assert watched.monitor.diagnose() == []
    assert len(watched.monitor.snapshots()) == 2
    (line,) = caplog.messages
    assert "job 'job' goes on, but it cannot be diagnosed or recorded" in line


def test_metrics_that_cannot_be_kept_do_not_end_the_job(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for number, each in enumerate(watched.made):
        each.reports[0]["tasks"][0]["name"] = "caf\udce9[0]"  # as it may come from a TaskManager of another version
        watched.report(replace(each, at=each.at + number))
    watched.monitor._late_rows = Unsummed()  # type: ignore[assignment]
    watched.made[-1].reports[0]["operators"][0]["late_rows"] = 1
    watched.report(replace(watched.made[-1], at=watched.now + 1))
    watched.finish(0.3)
    watched.monitor.settle()
    (line,) = caplog.messages
    assert "job 'job' goes on, but it cannot be diagnosed or recorded" in line


def test_a_driver_that_cannot_be_measured_does_not_end_the_job(caplog: pytest.LogCaptureFixture) -> None:
    class Unread:
        def read(self) -> dict[str, Any]:
            raise PermissionError(1, "Operation not permitted")

    watched = Watched()
    watched.monitor._limits = Unread()  # type: ignore[assignment]
    for each in watched.made:
        watched.report(each)
    watched.finish(0.3)
    (line,) = caplog.messages
    assert "job 'job' goes on, but it cannot be diagnosed or recorded" in line


def test_the_job_and_the_page_go_on_while_a_recording_is_written(tmp_path: Path) -> None:
    watched = Watched()
    for each in watched.made[:-1]:
        watched.report(each)

    class Target:
        """A path that is asked for when the file is opened."""

        def __fspath__(self) -> str:
            thread = threading.Thread(target=watched.report, args=(watched.made[-1],), daemon=True)
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
            return str(tmp_path / "job.recording")

    watched.monitor.save_recording(Target())
    assert [each.at for each in watched.monitor.snapshots()][-1] == watched.made[-1].at
    assert len(read_recording(tmp_path / "job.recording").snapshots) == len(watched.made) - 1


def test_a_failed_job_with_two_snapshots_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    watched, error = Watched(count=2), hg.HeadgateError("no more")
    watched.report(watched.made[0])
    assert watched.monitor.save_failure(error, "run") == []
    watched.report(watched.made[1])
    assert watched.monitor.save_failure(hg.JobCancelled("job 'job' was cancelled"), "run") == []
    assert list(tmp_path.rglob("*.recording")) == []
    (told,) = watched.monitor.save_failure(error, "run")
    (path,) = tmp_path.rglob("*.recording")
    assert str(path) in told
    assert read_recording(path).snapshots[-1].at == watched.made[1].at


def test_a_snapshot_of_ended_tasks_alone_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    watched = Watched(count=1)
    watched.report(watched.made[0])
    watched.finish(0.3)
    assert len(watched.monitor.snapshots()) == 2
    assert watched.monitor.save_failure(hg.HeadgateError("no more"), "run") == []


def test_the_counters_of_a_job_are_added_up_once_a_second_if_rows_are_late() -> None:
    """500 TaskManagers report 2,000 times a second, and each sum reads the reports of all."""
    env = hg.StreamEnvironment(parallelism=2)
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us"))])
    source = hg.sources.iterable([pa.RecordBatch.from_pylist([], schema)])
    rows = env.from_source(source, watermark=hg.Watermark("at", out_of_orderness="0 s"))
    rows.key_by("n").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    graph = build_job_graph(env._jobs.graph.graph(env._jobs.pending))
    now, sums = [1000.0], [0]
    reports = [snapshot.reports for snapshot in snapshots(topology_of("late", graph), {}, count=3)]
    attempt: Any = SimpleNamespace(
        has_reported=True, credentials=SimpleNamespace(attempt=0), reports=lambda: reports[int(now[0]) - 1000],
        host="127.0.0.1",
    )  # fmt: skip

    def metrics() -> dict[str, Any]:
        sums[0] += 1
        return {"operators": {}}

    def asks(*_: object) -> Any:
        raise AssertionError("nothing is slow")

    monitor = JobMonitor(
        "late", graph, hg.Config(), functions=SlowFunctions(asks),
        hot_keys=HotKeys(graph, lambda subtask: subtask, TaskRequests()), clock=lambda: now[0],
    )  # fmt: skip
    assert monitor._late_rows._bounds
    for tenth in range(21):
        if tenth == 10:
            reports[1][0]["operators"][1]["late_rows"] = 7  # from the second report on
            reports[2][0]["operators"][1]["late_rows"] = 8
        now[0] = 1000.0 + tenth / 10
        for _ in range(20):
            monitor.on_report(attempt, metrics)
    assert sums == [2]
    assert len(monitor.snapshots()) == 3
