"""The values of a job's time series: of its exchanges, and of its watermarks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.observe.history import MAX_BYTES, History
from headgate.observe.metrics_snapshot import MetricsSnapshot
from headgate.observe.series import series_of
from headgate.records.elements import MAX_TIME, MIN_TIME
from tests.observe.made_metrics import Does, line, snapshots

TOPOLOGY = line("numbers", "sums")
EDGE = "numbers -> sums"
ROWS, BYTES = f"edge/{EDGE}/rows_out", f"edge/{EDGE}/bytes_out"


def taken(does: Does, **moments: float) -> list[MetricsSnapshot]:
    edges = {EDGE: {"rows_out": 30, "bytes_out": 240, "buffers_out": 1}}
    return snapshots(TOPOLOGY, {(0, 0): does}, edges=edges, count=3, **moments)  # type: ignore[arg-type]


def test_an_exchange_has_the_rates_of_all_its_producers() -> None:
    first, second, _ = taken({})
    assert ROWS not in series_of(None, first)
    values = series_of(first, second)
    assert (values[ROWS], values[BYTES]) == (30.0, 240.0)
    both = [replace(each, reports=(*each.reports, *each.reports)) for each in (first, second)]
    assert series_of(*both)[ROWS] == 60.0


def test_a_rate_is_of_the_time_between_two_reports_and_begins_again_after_a_restart() -> None:
    first, _, third = taken({})
    assert series_of(first, third)[ROWS] == 30.0
    assert ROWS not in series_of(first, replace(third, attempt=1))


def test_the_lag_of_a_watermark_is_against_the_clock() -> None:
    lag = "operator/numbers[0]/watermark_lag_s"
    behind = [series_of(None, each).get(lag) for each in taken({"watermark": 990_000_000, "event_time": 0.75})]
    assert behind == [pytest.approx(10 + 0.25 * second) for second in range(3)]


@pytest.mark.parametrize(
    "does", [{}, {"watermark": MIN_TIME}, {"watermark": MAX_TIME}, {"watermark": 5, "is_idle": True}]
)
def test_without_a_watermark_that_counts_there_is_no_lag(does: Does) -> None:
    values = series_of(None, taken(does)[-1])
    assert not [name for name, value in values.items() if "watermark" in name and value is not None]


def test_the_series_of_a_large_job_keep_within_the_memory_of_a_history() -> None:
    topology = line("numbers", "sums", parallelism=100)
    does = {"watermark": 990_000_000, "busy_s": 0.5}
    tasks = {(vertex, subtask): does for vertex in range(2) for subtask in range(100)}
    edges = {EDGE: {"rows_out": 30, "bytes_out": 240}}
    first, second = snapshots(topology, tasks, edges=edges, count=2)
    values, history = series_of(first, second), History()
    for second_ in range(2000):  # they would need 73 MiB
        history.record(float(second_), values)
    assert 0.9 * MAX_BYTES < history.nbytes <= MAX_BYTES
    assert history.points(BYTES)[-1].mean == 240.0
    assert len(history.points("operator/sums[99]/watermark_lag_s")) > 100
