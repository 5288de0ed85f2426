"""A watermark that stands while rows flow: one warning, with the operator, subtask and split that hold it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.plan.job_graph import JobGraph, build_job_graph
from headgate.runtime.master import stalled_watermarks
from headgate.runtime.master.stalled_watermarks import StalledWatermarks
from tests.runtime.jobs import eventually

SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("us")})
SECOND = 1_000_000


class Report:
    """The clock, and what two subtasks of a source and one of a window report."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rows = 0
        self.watermark = MIN_TIME
        self.sources = [MIN_TIME, 5 * SECOND]
        self.idle = [False, False]

    def clock(self) -> float:
        return self.now

    def operators(self) -> list[dict[str, Any]]:
        sources = [
            {
                "name": "trips",
                "subtask": subtask,
                "rows_in": 9,
                "watermark": watermark,
                "is_idle": idle,
                "split": "split 3",
            }
            for subtask, (watermark, idle) in enumerate(zip(self.sources, self.idle, strict=True))
        ]
        return [*sources, {"name": "window", "subtask": 0, "rows_in": self.rows, "watermark": self.watermark}]


def graph(timed: bool = True) -> JobGraph:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    source = hg.sources.iterable([pa.RecordBatch.from_pylist([], schema=SCHEMA)])
    keyed = env.from_source(source, watermark=hg.Watermark("at")).name("trips").key_by("key")
    counts = keyed.window(hg.tumble("1 s")) if timed else keyed
    counts.aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    return build_job_graph(env._jobs.graph.graph(env._jobs.pending))


@pytest.fixture
def report() -> Report:
    return Report()


def warnings(report: Report, caplog: pytest.LogCaptureFixture, job: JobGraph, seconds: int, flow: int = 1) -> list[str]:
    """What is said in so many seconds with `flow` rows a second."""
    caplog.clear()
    standing = StalledWatermarks(job, report.clock)
    for _ in range(seconds):
        standing.update(report.operators)
        report.now += 1
        report.rows += flow
    return [record.getMessage() for record in caplog.records]


def test_one_warning_names_who_holds_it(report: Report, caplog: pytest.LogCaptureFixture) -> None:
    [said] = warnings(report, caplog, graph(), 60)
    assert said.startswith(
        "window: its watermark has stood at no time for 10 s, while 10 rows came; trips[0] holds it: it reads split 3, "
        "which has given no row yet."
    )
    assert "idle_timeout" in said


@pytest.mark.parametrize(
    "change",
    [{"flow": 0}, {"seconds": 10}, {"job": graph(timed=False)}],
    ids=["no row comes", "not yet for 10 s", "no operator goes by event time"],
)
def test_there_is_no_warning(report: Report, caplog: pytest.LogCaptureFixture, change: dict[str, Any]) -> None:
    assert warnings(report, caplog, **{"job": graph(), "seconds": 60, **change}) == []


@pytest.mark.parametrize(("sources", "idle"), [([SECOND, SECOND], [False, False]), ([MIN_TIME, SECOND], [True, False])])
def test_no_source_holds_a_watermark_that_is_on_its_way(
    report: Report, caplog: pytest.LogCaptureFixture, sources: list[int], idle: list[bool]
) -> None:
    report.sources, report.idle = sources, idle
    assert warnings(report, caplog, graph(), 60) == []


def test_the_warning_comes_again_once_the_watermark_has_moved(report: Report, caplog: pytest.LogCaptureFixture) -> None:
    standing = StalledWatermarks(graph(), report.clock)
    for watermark in (MIN_TIME, 5 * SECOND, MAX_TIME):
        report.watermark = watermark
        report.sources = [watermark, MAX_TIME]
        for _ in range(15):
            standing.update(report.operators)
            report.now += 1
            report.rows += 1
    first, second = [record.getMessage() for record in caplog.records]
    assert "stood at no time" in first
    assert "stood at 1970-01-01T00:00:05Z" in second
    assert "which is at 1970-01-01T00:00:05Z" in second


def test_in_a_job(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stalled_watermarks, "STANDS", 0.3)
    done = threading.Event()

    def quiet(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        done.wait(60)
        yield from ()

    def busy(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        at = 0
        while not done.wait(0.01):
            at += SECOND
            yield pa.RecordBatch.from_pydict({"key": [1], "at": [at]}, schema=SCHEMA)

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    streams = [
        env.from_source(hg.sources.iterable(made, schema=SCHEMA, bounded=False), watermark=hg.Watermark("at")).name(
            name
        )
        for name, made in (("quiet", quiet), ("busy", busy))
    ]
    windows = streams[0].union(streams[1]).key_by("key").window(hg.tumble("1 s"))
    windows.aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        eventually(lambda: "its watermark has stood" in caplog.text, timeout=60)
    finally:
        done.set()
        job.wait(60)
    [said] = [record.getMessage() for record in caplog.records if "its watermark has stood" in record.getMessage()]
    assert "window: " in said
    assert "quiet[0] holds it: it reads split 0, which has given no row yet" in said
