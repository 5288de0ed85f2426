"""Latency markers: when sources send them, what histograms keep of them, and a job that shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.records.elements import LatencyMarker
from headgate.runtime.latency_markers import LatencyHistogram, MarkerTimer, summary
from tests.runtime.jobs import counted, endless, environment, eventually, keyed


def histogram(*microseconds: int) -> list[tuple[int, int]]:
    made = LatencyHistogram()
    for value in microseconds:
        made.record(value)
    return made.points()


@given(st.integers(0, 1 << 40))
def test_a_bucket_is_three_percent_wide(value: int) -> None:
    shown = round(summary([histogram(value)])["max_s"] * 1e6)
    assert value <= shown <= max(value, value * 33 // 32)


def test_quantiles_of_several_histograms_together() -> None:
    both = summary([histogram(*range(1, 51)), histogram(*range(51, 101))])
    assert both["count"] == 100
    assert both["p50_s"] == pytest.approx(50e-6, rel=0.04)
    assert both["p99_s"] == pytest.approx(99e-6, rel=0.04)
    assert both["max_s"] == pytest.approx(100e-6, rel=0.04)


def test_clocks_that_disagree_make_no_negative_latency() -> None:
    assert summary([histogram(-5, 3)]) == {"count": 2, "p50_s": 0.0, "p99_s": 3e-6, "max_s": 3e-6}


def test_nothing_recorded() -> None:
    assert summary([[]]) == {"count": 0, "p50_s": 0.0, "p99_s": 0.0, "max_s": 0.0}


def test_a_timer_gives_one_marker_each_interval() -> None:
    timer = MarkerTimer(3600.0, 7, 1)
    assert timer.deadline < 0
    assert timer.take(5.0, 2.0) == LatencyMarker(2_000_000, 7, 1)
    assert timer.deadline == 3605.0


@pytest.mark.parametrize("processes", [False, True])
def test_a_job_shows_the_latency_of_each_operator_from_each_source(processes: bool) -> None:
    """Also of a stream that has next to no rows: markers need none."""
    env = environment(processes, latency_interval="5 ms", buffer_timeout="1 ms")
    keyed(endless(env, rate=2)).sink_to(hg.sinks.null())
    job = env.execute_async()
    sink = eventually(lambda: _latency(job, "null", 20), 60)
    aggregate = _latency(job, "aggregate", 20)
    for latency in (aggregate, sink):
        assert 0 <= latency["p50_s"] <= latency["p99_s"] <= latency["max_s"]
    job.cancel()


def _latency(job: hg.JobHandle, operator: str, count: int) -> dict[str, float]:
    latency = job.metrics()["operators"].get(operator, {}).get("latency", {}).get("generate", {})
    return latency if latency.get("count", 0) >= count else {}


def test_none_are_sent_unless_asked_for() -> None:
    env = environment()
    keyed(counted(env)).sink_to(hg.sinks.null())
    assert all("latency" not in operator for operator in env.execute().metrics["operators"].values())
