"""The lab's source and sink: rows have the right due times, and the sink counts every row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.connectors.connector import ReaderContext, WriterContext
from headgate.lab.flows import BATCH_ROWS, PAYLOAD, SCHEMA, Flow, Flows, by_target
from headgate.lab.probe import Gap, Probe, Slow, Stall


class Clock:
    """A wall clock that moves only when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _reader(flow: Flow, clock: Clock, seconds: float = 1.0, subtask: int = 0):  # type: ignore[no-untyped-def]
    context = ReaderContext(
        job="job", operator="flows", subtask=subtask, parallelism=4, wake=lambda: None, started_at=1000.0, clock=clock
    )
    return Flows({0: flow}, seconds).reader(context)


def _rows(due: list[int], sources: list[int]) -> pa.RecordBatch:
    body = pa.array([bytes(PAYLOAD)] * len(due), pa.binary(PAYLOAD))
    return pa.record_batch([pa.array(due), pa.array(sources), pa.array([3] * len(due)), body], schema=SCHEMA)


def test_paced_rows_keep_their_due_times_when_the_source_is_late() -> None:
    clock = Clock()
    reader = _reader(Flow((3,), rate=5000.0), clock)
    assert reader.read() is None
    assert 1000 < reader.next_read() <= 1000.001
    clock.now = 1010.0
    due: list[int] = []
    while (batch := reader.read()) is not None:
        assert batch.num_rows <= 5
        assert by_target(batch, 4).tolist() == [3] * batch.num_rows
        due += batch["due"].to_pylist()
    assert reader.finished
    assert due == [1_000_000_000 + 200 * row for row in range(5000)]


def test_a_source_that_ends_on_time_leaves_out_what_it_could_not_read() -> None:
    clock = Clock()
    reader = _reader(Flow((3,), rate=5000.0, ends_on_time=True), clock)
    clock.now = 1000.5
    assert reader.read().num_rows == 5
    clock.now = 1001.05  # a little late, as a source that was only woken late
    assert reader.read().num_rows == 5
    clock.now = 1001.2
    assert reader.read() is None
    assert reader.finished


def test_at_full_speed_rows_are_due_when_they_are_made() -> None:
    clock = Clock()
    reader = _reader(Flow((1, 3)), clock)
    clock.now = 1000.5
    batch = reader.read()
    assert batch.num_rows == BATCH_ROWS
    assert set(batch["due"].to_pylist()) == {1_000_500_000}
    assert np.bincount(by_target(batch, 4)).tolist() == [0, BATCH_ROWS // 2, 0, BATCH_ROWS // 2]
    clock.now = 1001.0
    assert reader.read() is None
    assert reader.finished


def near(value: float) -> Any:
    return pytest.approx(value)


def test_subtasks_without_a_flow_make_nothing() -> None:
    assert _reader(Flow((1,)), Clock(), subtask=2).finished


@pytest.fixture
def clock() -> Clock:
    """The clock of the probe. A stall moves it."""
    return Clock()


def _context(clock: Callable[[], float], sleep: Callable[[float], None]) -> WriterContext:
    return WriterContext(
        job="job",
        operator="probe",
        subtask=3,
        parallelism=4,
        schema=SCHEMA,
        deliver=print,
        clock=clock,
        sleep=sleep,
        wait_until=lambda condition: None,
    )


def _watch(probe: Probe, clock: Clock, batches: list[tuple[float, list[int]]], sources: tuple[int, ...] = (0,)) -> None:
    writer = probe.writer(_context(clock, lambda seconds: setattr(clock, "now", clock.now + seconds)))
    for moment, due in batches:
        clock.now = max(clock.now, moment)
        writer.write(_rows(due, [sources[row % len(sources)] for row in range(len(due))]))
    probe.commit([None, writer.finish()])


def test_rows_are_counted_by_when_they_came_and_late_by_when_they_were_due(clock: Clock) -> None:
    probe = Probe()
    start = 1_000_000_000
    _watch(probe, clock, [(1000.05, [start, start + 49_000]), (1000.25, [start + 150_000, start + 240_000])])
    seen = probe.seen[3]
    assert seen.arrived[:3].tolist() == [2, 0, 2]
    assert seen.rate(0, 0.3) == pytest.approx(4 / 0.3)
    assert seen.late.sum() == 4
    assert seen.latency(100, 0, 0.1) == pytest.approx(50, rel=0.03)
    assert seen.latency(1, 0.2, 0.3) == pytest.approx(10, rel=0.03)
    assert np.isnan(seen.latency(50, 5, 6))
    assert seen.latency(100, 0, 0.3) == 100.0, "the longest is exact"
    assert all(seen.latency(percent, 0, 0.3) >= exact for percent, exact in ((25, 1.0), (50, 10.0), (75, 50.0)))


def test_the_sources_stop_shows_in_what_it_made(clock: Clock) -> None:
    probe = Probe({3: Stall(after=0.1, seconds=2.0)})
    start = 1_000_000_000
    moments = [0, 100_000, 150_000, 180_000, 2_100_000, 2_150_000]
    _watch(probe, clock, [(1000 + at / 1e6, [start + at] * 10) for at in moments])
    seen = probe.seen[3]
    assert seen.stalled == (near(0.1), near(2.1))
    assert seen.gaps == {0: Gap(near(0.18), near(2.1), 20)}


def test_the_sources_stop_may_be_within_a_batch(clock: Clock) -> None:
    probe = Probe({3: Stall(after=0.1, seconds=2.0)})
    start = 1_000_000_000
    batches = [[0], [100_000], [150_000, 180_000, 2_100_000, 2_150_000]]
    _watch(probe, clock, [(1000 + max(at) / 1e6, [start + due for due in at]) for at in batches])
    assert probe.seen[3].gaps == {0: Gap(near(0.18), near(2.1), 2)}


def test_each_sources_stop_is_its_own(clock: Clock) -> None:
    probe = Probe({3: Stall(after=0.1, seconds=2.0)})
    start = 1_000_000_000
    mixed = [(0, 10_000), (100_000, 120_000), (150_000, 190_000), (2_100_000, 2_200_000)]  # two rows to a batch
    _watch(probe, clock, [(1000 + max(at) / 1e6, [start + due for due in at]) for at in mixed], sources=(0, 2))
    gaps = probe.seen[3].gaps
    assert gaps[0] == Gap(near(0.15), near(2.1), 1)
    assert gaps[2] == Gap(near(0.19), near(2.2), 1)


def test_a_stall_that_burns_takes_as_long() -> None:
    moments = iter([1000.0, 1000.0, 1001.0, 1001.9, 1002.0, 1002.0])
    writer = Probe({3: Stall(0.0, 2.0, burns=True)}).writer(_context(lambda: next(moments), print))
    writer.write(_rows([1_000_000_000], [0]))
    assert list(moments) == []


@pytest.mark.parametrize(("idle", "late", "seconds"), [(0.0, 0.0, 0.99), (0.0, 0.05, 0.99), (0.2, 0.0, 1.18)])
def test_a_slow_sink_makes_up_for_late_wake_ups_and_not_for_the_time_without_rows(
    clock: Clock, idle: float, late: float, seconds: float
) -> None:
    """Each of 100 batches takes 10 ms, and 10 ms are saved at the start. The thread may wake late."""
    wakes = iter([0.0] * 50 + [late] + [0.0] * 49)
    writer = Probe(slows={3: Slow(1000.0)}).writer(
        _context(clock, lambda seconds: setattr(clock, "now", clock.now + seconds + (next(wakes) if seconds else 0.0)))
    )
    began = clock.now
    for number in range(100):
        clock.now += idle if number == 30 else 0.0
        writer.write(_rows([round(1e6 * clock.now)] * 10, [0] * 10))
    assert clock.now - began == pytest.approx(seconds, abs=0.001)
