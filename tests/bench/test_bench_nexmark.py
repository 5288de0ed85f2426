"""The case `nexmark` without Flink: its files, its jobs, and its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from headgate.bench.case_options import Options
from headgate.bench.nexmark_queries import nexmark_case as nexmark
from headgate.bench.nexmark_queries.flink_nexmark import FlinkNexmark
from headgate.bench.nexmark_queries.nexmark_case import Files, NoRate, _figures, _queries, _Query, _rate, _seconds
from headgate.bench.nexmark_queries.nexmark_latency import WINDOWED, events_per_s, latencies
from headgate.errors import HeadgateError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.written(tmp_path_factory.mktemp("nexmark"), 40_000)


def test_the_files_have_every_row_in_two_row_groups(files: Files) -> None:
    assert files.rows == {"persons": 800, "auctions": 2400, "bids": 36_800}
    for kind, rows in files.rows.items():
        parts = sorted((files.folder / kind).iterdir())
        assert [pq.ParquetFile(part).num_row_groups for part in parts] == [1, 1]
        assert sum(pq.read_metadata(part).num_rows for part in parts) == rows


def test_a_query_reads_all_rows_of_its_files(files: Files) -> None:
    queries, kinds = _queries()
    assert _seconds(queries["q8"], kinds("q8"), files) > 0
    lacking = Files(files.folder, {**files.rows, "bids": 36_801})
    with pytest.raises(HeadgateError, match="q2 read 36,800 rows of 36,801"):
        _seconds(queries["q2"], kinds("q2"), lacking)


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", WINDOWED)
def test_the_latency_of_a_window_counts_from_its_last_row(name: str) -> None:
    """Of a small load, which the machine keeps up with. q7 and q8 have one whole window, whose end counts, too."""
    queries, kinds = _queries()
    late = latencies(name, queries[name], kinds(name), rate=1000, seconds=11.0, parallelism=1)
    assert len(late)
    assert late.min() > -1000, "about: a busy machine delays the first rows, too"
    assert np.percentile(late, 50) < 5000


def test_a_query_without_results_costs_no_other_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def latencies_of(name: str, *_query: object, rate: int, **_more: object) -> Any:
        if name == "q8":
            raise HeadgateError("q8 has no result in 25 s")
        assert rate == 50, "half of the rate found"
        return np.array([1.0, 3.0])

    monkeypatch.setattr(nexmark, "latencies", latencies_of)
    monkeypatch.setattr(nexmark, "sustained_rate", lambda *_query, **_more: 100.0)
    case = nexmark._Case(*_queries(), {}, [])
    figures = case.lateness(Options(quick=True, say=lambda text: None))
    of_one = ["rate found", "p50 latency at 50 %", "p99 latency at 50 %"]
    assert [figure.name for figure in figures] == [f"{name}: {each}" for name in ("q5", "q7") for each in of_one]
    assert [skipped.what for skipped in case.skipped] == ["q8: latency"]


def test_the_latency_is_measured_in_rounds_at_one_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = iter(range(100))
    monkeypatch.setattr(nexmark, "latencies", lambda *_query, rate, **_more: np.full(9, rate + next(measured)))
    monkeypatch.setattr(nexmark, "sustained_rate", lambda *_query, **_more: 100.0)
    case = nexmark._Case(*_queries(), {}, [])
    figures = {figure.name: figure for figure in case.lateness(Options(quick=False, say=lambda text: None))}
    assert [figures[f"{name}: rate found"].values for name in WINDOWED] == [(100.0,)] * 3
    assert figures["q5: p99 latency at 50 %"].values == figures["q5: p50 latency at 50 %"].values == (50, 51, 52)
    assert figures["q8: p99 latency at 50 %"].values == (56, 57, 58)


def test_queries_without_a_peer_have_a_rate_and_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flink:
        pid = 7

    monkeypatch.setattr(nexmark, "_ours", lambda *_query: (4.0, 2.0))
    monkeypatch.setattr(nexmark, "_flinks", lambda *_query: (1.0, 3.0))
    flink: Any = Flink()
    case = nexmark._Case(*_queries(), {name: _Query() for name in ("q0", "q12", "q13")}, [])
    case.round(nexmark._Sets([], [], []), flink, Options(quick=True, say=lambda text: None))
    figures, _ = _figures(case.measured)
    by_name = {figure.name: figure.median for figure in figures}
    assert [name for name in by_name if "Flink" in name and name.startswith("q")] == [
        "q0: Flink SQL", "q0: Flink SQL, peak memory", "q0: ratio to Flink",
    ]  # fmt: skip
    assert (by_name["q12: Headgate"], by_name["q13: Headgate"], by_name["least ratio"]) == (4.0, 4.0, 4.0)


@pytest.mark.parametrize("name", nexmark._ALONE)
def test_a_query_without_a_peer_runs(name: str, files: Files) -> None:
    queries, kinds = _queries()
    assert _seconds(queries[name], kinds(name), files) > 0


@pytest.mark.parametrize(("failures", "is_skipped"), [(2, False), (3, True)])
def test_a_query_is_measured_again_where_the_machine_was_busy(
    failures: int, is_skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def ours(*_query: object) -> tuple[float, float]:
        tries.append("q0")
        if len(tries) <= failures:
            raise NoRate("the machine is busy")
        return 1.0, 2.0

    monkeypatch.setattr(nexmark, "_ours", ours)
    case = nexmark._Case(*_queries(), {"q0": _Query()}, [])
    case.round(nexmark._Sets([], [], []), None, Options(quick=True, say=lambda text: None))
    assert len(tries) == 3
    assert bool(case.skipped) is is_skipped
    assert case.measured["q0"].ours == ([] if is_skipped else [1.0])


def test_a_rate_with_made_events_does_not_count_the_start() -> None:
    query = _queries()[0]["q0"]
    with pytest.raises(HeadgateError, match="1 events took no longer than 2,000,000"):
        events_per_s(query, ["bids"], (2_000_000, 1), parallelism=1)  # it also starts the server for processes
    assert events_per_s(query, ["bids"], (1, 2_000_000), parallelism=1) > 10_000


def test_a_query_without_results_has_no_latency() -> None:
    with pytest.raises(HeadgateError, match="q8 has no result"):
        latencies("q8", lambda persons: persons.filter("id < 0"), ["persons"], rate=1000, seconds=0.1, parallelism=1)


def test_both_sides_have_every_query() -> None:
    names = {*nexmark.NAMES, *nexmark._MORE}
    assert names <= _queries()[0].keys()
    assert names == FlinkNexmark.queries
    assert not names & {*nexmark._ALONE}
    assert {*nexmark._ALONE} <= _queries()[0].keys()


def test_a_rate_is_per_core_and_without_start_up() -> None:
    sets = [Files(Path(), {"bids": rows}) for rows in (1_000, 21_000)]
    assert _rate(["bids"], sets, [5.0, 6.0]) == 10_000
    with pytest.raises(NoRate, match="21,000 rows took 5.00 s, and 1,000 took 5.00 s; the machine is busy"):
        _rate(["bids"], sets, [5.0, 5.0])


def measured(*ratios: float) -> dict[str, _Query]:
    return {
        f"q{number}": _Query(ours=[ratio], flinks=[1.0], our_memory=[1.0], flinks_memory=[1.0])
        for number, ratio in enumerate(ratios)
    }


@pytest.mark.parametrize(("ratios", "met"), [((2.0, 12.5), True), ((2.0, 12.0), False), ((0.9, 99.0), False)])
def test_the_mean_and_the_least_ratio_decide(ratios: tuple[float, ...], met: bool) -> None:
    figures, found = _figures(measured(*ratios))
    by_name = {figure.name: figure.median for figure in figures}
    assert found is met
    assert by_name["least ratio"] == min(ratios)
    assert by_name["geometric mean of the ratios"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)


def rates(ours: float, flinks: float) -> _Query:
    return _Query(ours=[ours] * 3, flinks=[flinks] * 3, our_memory=[1.0], flinks_memory=[1.0])


def test_the_smaller_of_the_ratio_and_of_the_ratio_without_reading_counts() -> None:
    """q0 takes 1 and 4 us for a row. q5 takes 2 and 9 us: 1 and 5 us without q0. q7 takes 2 and 6 us: 1 and 2 us."""
    million = 1e6
    found, met = _figures({"q0": rates(million, million / 4), "q5": rates(million / 2, million / 9),
                           "q7": rates(million / 2, million / 6), "q8": rates(million / 2, million / 6)})  # fmt: skip
    by_name = {figure.name: figure.median for figure in found}
    assert by_name["q5: ratio to Flink"] == pytest.approx(4.5)
    assert by_name["q5: ratio to Flink, net of q0"] == pytest.approx(5)
    assert by_name["q7: ratio to Flink, net of q0"] == pytest.approx(2)
    assert not {"q0: ratio to Flink, net of q0", "q8: ratio to Flink, net of q0"} & by_name.keys(), "q8 reads others"
    assert by_name["least ratio"] == pytest.approx(2)
    assert by_name["geometric mean of the ratios"] == pytest.approx((4 * 4.5 * 2 * 3) ** 0.25)
    assert not met


@pytest.mark.parametrize("query", [rates(0.95, 0.1), rates(0.5, 0.24), rates(2.0, 2.0), _Query(ours=[1.0])])
def test_a_query_that_takes_about_as_long_as_its_reading_has_no_net_ratio(query: _Query) -> None:
    assert query.net_ratio(rates(1.0, 0.25)) is None


def test_queries_with_a_net_ratio_read_only_bids() -> None:
    kinds = _queries()[1]
    assert set(nexmark._OF_BIDS) == {
        name for name in (*nexmark.NAMES, *nexmark._MORE) if name != "q0" and kinds(name) == ["bids"]
    }


def test_a_query_whose_rounds_overlap_with_those_of_its_reading_has_no_net_ratio() -> None:
    reading = _Query(ours=[4.0, 5.0, 6.0], flinks=[2.0, 2.1, 2.8])
    assert _Query(ours=[2.0, 2.0, 3.9], flinks=[0.8, 1.0, 1.9]).net_ratio(reading) is not None
    assert _Query(ours=[2.0, 2.0, 3.9], flinks=[0.8, 1.0, 2.0]).net_ratio(reading) is None
    assert _Query(ours=[2.0, 2.0, 4.0], flinks=[0.8, 1.0, 1.9]).net_ratio(reading) is None
