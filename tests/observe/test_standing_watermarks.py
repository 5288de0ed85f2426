"""A watermark that stands while rows flow: a finding that names who holds it, and one line in the driver's log."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.observe import standing_watermarks
from headgate.observe.diagnosis import diagnose
from headgate.observe.finding import Finding, Severity
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.topology import Topology
from headgate.records.elements import MAX_TIME, MIN_TIME
from headgate.runtime.master.told_findings import ToldFindings
from tests.observe.made_metrics import Tasks, line, snapshots
from tests.runtime.jobs import eventually

SCHEMA = pa.schema({"key": pa.int64(), "at": pa.timestamp("us")})
SECOND = 1_000_000
FLOWS = {"idle_s": 0.9, "busy_s": 0.1, "cpu_s": 0.1, "rows": 100}


def job(timed: bool = True, watermarks: bool = True) -> Topology:
    """Return two subtasks each of a source, a window and a sink."""
    topology = line("trips", "window", "out")
    marks = {"trips": watermarks, "window": timed}
    vertices = tuple(
        replace(vertex, operators=tuple(replace(each, timed=marks.get(each.name, False)) for each in vertex.operators))
        for vertex in topology.vertices
    )
    return replace(topology, vertices=vertices)


def tasks(first: Mapping[str, Any], second: Mapping[str, Any], window: int = MIN_TIME, rows: int = 100) -> Tasks:
    """Return what each task does in a second: the two readers as given, and windows at a watermark."""
    windows = {**FLOWS, "watermark": window, "rows": rows}
    readers = {(0, number): {**FLOWS, "split": "split 3", **does} for number, does in enumerate((first, second))}
    return {**readers, (1, 0): windows, (1, 1): windows, (2, 0): FLOWS, (2, 1): FLOWS}


def found(topology: Topology, made: list[MetricsSnapshot]) -> list[Finding]:
    return [each for each in diagnose(topology, made) if each.cause.name == standing_watermarks.CAUSE]


HELD = tasks({"watermark": MIN_TIME}, {"watermark": 5 * SECOND})


def test_the_finding_names_who_waits_and_who_holds_it() -> None:
    (finding,) = found(job(), snapshots(job(), HELD, count=20))
    assert finding.sentence.startswith(
        "'window' waits for 'trips[0]': its watermark has stood at no time for 9 s, while 1800 rows came; "
        "no window that ends later fires until its split goes on or ends; "
    )
    assert "idle_timeout" in finding.sentence
    assert (finding.vertex, finding.operator, finding.subtasks) == (0, "trips", (0,))
    assert finding.severity is Severity.BEHIND


def test_the_page_does_not_have_the_name_of_the_split() -> None:
    (finding,) = found(job(), snapshots(job(), HELD, count=20))
    assert finding.note == "trips[0] has read no row of split 3 yet"
    assert "split 3" not in str(finding.as_json())


@pytest.mark.parametrize(
    ("topology", "does", "seconds"),
    [
        (job(), tasks({"watermark": MIN_TIME}, {"watermark": SECOND}, rows=0), 20),
        (job(), HELD, 9),
        (job(timed=False), HELD, 20),
        (job(watermarks=False), HELD, 20),
        (job(), tasks({"watermark": SECOND}, {"watermark": SECOND}), 20),
        (job(), tasks({"watermark": MIN_TIME, "is_idle": True}, {"watermark": SECOND}), 20),
        (job(), tasks({"watermark": MAX_TIME}, {"watermark": MAX_TIME}, MAX_TIME), 20),
        (job(), tasks({"watermark": SECOND}, {"watermark": SECOND}, SECOND), 20),
        (job(), tasks({"watermark": SECOND}, {"watermark": 5 * SECOND}, SECOND), 20),
    ],
    ids=[
        "no row comes", "not yet for 10 s", "no operator goes by event time", "sources without watermarks",
        "it is on its way", "the one that has none is idle", "the input has ended",
        "event time is coarse", "event time of the one that is behind is coarse",
    ],
)  # fmt: skip
def test_there_is_no_finding(topology: Topology, does: Tasks, seconds: int) -> None:
    assert found(topology, snapshots(topology, does, count=seconds)) == []


def test_of_two_subtasks_with_the_same_watermark_the_one_without_rows_holds_it() -> None:
    silent = {"watermark": SECOND, "rows": 0}
    (finding,) = found(job(), snapshots(job(), tasks({"watermark": SECOND}, silent, SECOND), count=20))
    assert finding.place == "'trips[1]'"
    assert finding.note == "trips[1] reads split 3 and is at 1970-01-01T00:00:01Z"


def test_of_several_splits_one_may_hold_the_watermark_while_others_have_rows() -> None:
    for silent in (9.0, 60.0, None):  # an old recording does not say it
        several = {"watermark": SECOND, "split_has_rows": True, "split_silent_s": silent}
        (finding,) = found(job(), snapshots(job(), tasks(several, {"watermark": 5 * SECOND}, SECOND), count=20))
        assert finding.place == "'trips[0]'"


def test_of_several_splits_all_of_which_have_rows_none_holds_the_watermark() -> None:
    several = {"watermark": SECOND, "split_has_rows": True, "split_silent_s": 0.5}
    assert found(job(), snapshots(job(), tasks(several, {"watermark": 5 * SECOND}, SECOND), count=20)) == []


def test_each_watermark_that_stands_is_logged_once() -> None:
    told = ToldFindings("job")
    at_five = tasks({"watermark": 5 * SECOND, "rows": 0}, {"watermark": MAX_TIME}, 5 * SECOND)
    lines: list[str] = []
    for second in range(60):
        does = HELD if second < 30 else at_five
        lines += told.lines(found(job(), snapshots(job(), does, count=20)), float(second))
    first, second_line = lines
    assert first.startswith("job 'job': 'window' waits for 'trips[0]': its watermark has stood at no time for 9 s")
    assert first.endswith(". trips[0] has read no row of split 3 yet")
    assert "stood at 1970-01-01T00:00:05Z" in second_line
    assert second_line.endswith("trips[0] reads split 3 and is at 1970-01-01T00:00:05Z")


def test_there_is_at_most_one_line_in_30_seconds() -> None:
    (stands,) = found(job(), snapshots(job(), HELD, count=20))
    behind = replace(stands, cause=replace(stands.cause, name="slow_function"))
    told = ToldFindings("job")
    lines = {now: told.lines([behind, stands], now) for now in (0.0, 1.0, 29.9, 30.0, 59.0, 60.0)}
    assert [now for now, said in lines.items() if said] == [0.0, 30.0, 60.0]
    assert lines[0.0][0].startswith("job 'job': ")
    assert lines[30.0][0].startswith("job 'job' is behind: ")
    assert lines[60.0] == lines[30.0]


def test_in_a_job(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(standing_watermarks, "STANDS", 4.0)
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
    running = env.execute_async()
    try:
        eventually(lambda: "its watermark has stood" in caplog.text, timeout=60)
    finally:
        done.set()
        running.wait(60)
    [said] = [record.getMessage() for record in caplog.records if "its watermark has stood" in record.getMessage()]
    assert "'window' waits for 'quiet[0]'" in said
    assert "quiet[0] has read no row of split 0 yet" in said


class Polled:
    """Three splits. Two of them have a row each second of event time. Split b has `rows` rows, and then no more."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.done = threading.Event()

    def __call__(self, split: str, position: int | None) -> tuple[pa.RecordBatch, int] | None:
        number = position or 0
        if self.done.wait(0.005):
            return None
        if split == "b" and number == self.rows:
            return pa.RecordBatch.from_pylist([], SCHEMA), number
        return pa.RecordBatch.from_pydict({"key": [1], "at": [number * SECOND]}, schema=SCHEMA), number + 1


@pytest.mark.parametrize(
    ("rows", "note"),
    [(0, "polled[0] has read no row of b yet"), (6, "polled[0] reads b and is at 1970-01-01T00:00:05Z")],
)
def test_of_several_open_splits_the_warning_names_the_one_that_holds_the_watermark(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rows: int, note: str
) -> None:
    """Once it named all of them."""
    monkeypatch.setattr(standing_watermarks, "STANDS", 4.0)
    polled = Polled(rows)
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    source = hg.sources.poll(polled, SCHEMA, ("a", "b", "c"))
    stream = env.from_source(source, watermark=hg.Watermark("at")).name("polled")
    stream.key_by("key").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    running = env.execute_async()
    try:
        eventually(lambda: "its watermark has stood" in caplog.text, timeout=60)
    finally:
        polled.done.set()
        running.wait(60)
    [said] = [record.getMessage() for record in caplog.records if "its watermark has stood" in record.getMessage()]
    assert said.endswith(f". {note}")


def test_a_new_split_without_rows_holds_a_watermark_that_has_begun() -> None:
    """The watermark of the subtask is not the time of this split."""
    new = {"watermark": SECOND, "split": "new", "split_has_rows": False, "split_silent_s": 3.0}
    (finding,) = found(job(), snapshots(job(), tasks(new, {"watermark": 5 * SECOND}, SECOND), count=20))
    assert finding.note == "trips[0] has read no row of new yet"
