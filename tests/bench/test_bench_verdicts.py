"""The verdicts of the cases, on given figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

import headgate as hg
from headgate.bench import exchange, keyed_job, keyed_sum, latency, latency_adaptive, metrics_cost, slow_sink
from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.idle_timer import new_histogram
from headgate.bench.keyed_job import ROW_BYTES, keyed_sum_seconds
from headgate.bench.report import CaseResult
from headgate.errors import HeadgateError
from headgate.exchange.pending import PENDING_BUDGET

TOLD = Options(quick=False, say=lambda text: None)
MS = 1000
MB = 1_000_000


def median(result: CaseResult, name: str) -> float:
    return next(figure.median for figure in result.figures if figure.name == name)


@pytest.mark.parametrize(
    ("small", "large", "hundred", "middle", "met"),
    [
        (0.6, 0.1, 0.5, 0.1, True),
        (0.1, 0.6, 0.1, 0.5, True),
        (0.59, 0.59, 0.9, 0.9, False),
        (0.9, 0.9, 0.49, 0.49, False),
    ],
)
def test_exchange_counts_the_better_size_of_buffers(
    *, small: float, large: float, hundred: float, middle: float, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The better size of buffers counts, over one channel and over a hundred."""
    of_size = {1 << 20: (large, None), 64 << 10: (None, middle)}

    def rate(_producer: Any, _consumer: Any, _volume: int, config: Any, channels: int = 1, **shape: Any) -> float:
        of_32_kib = (small, hundred) if "max_buffers_per_channel" in config else (0.01, 0.01)
        part = of_size.get(config.get("segment_size"), of_32_kib)[channels > 1]
        assert part is not None
        return part * (2e9 if shape.get("tls") else 1e9)  # TLS must not count, however fast it is

    monkeypatch.setattr(exchange, "end", lambda name, rank: nullcontext())
    monkeypatch.setattr(exchange, "payload_rate", lambda volume: 1e9)
    monkeypatch.setattr(exchange, "rate", rate)
    result = exchange.run(TOLD)
    assert result.met is met
    assert median(result, "64 buffers / raw") == small
    assert median(result, "64 buffers, TLS / plain") == median(result, "4 buffers of 1 MiB, TLS / plain") == 2
    assert median(result, "100 channels, buffers of 64 KiB / raw") == middle


def rates(monkeypatch: pytest.MonkeyPatch, ours: float, flink: Callable[..., Any]) -> None:
    """Replace Headgate and Flink by given rows/s; sources cost half of a row's time."""
    monkeypatch.setattr(keyed_sum, "keyed_sum_seconds", lambda rows: 3.0 + rows / ours)
    monkeypatch.setattr(keyed_sum, "source_seconds", lambda rows: 3.0 + rows / ours / 2)
    monkeypatch.setattr(keyed_sum, "Flink", flink)
    monkeypatch.setattr(keyed_sum, "spark_rates", lambda *sizes: [5e6])


@contextmanager
def flink_of(rate: float, runs: int | None = None) -> Iterator[Any]:
    """A substitute for Flink with a given rate, which fails after some runs."""
    left = iter(range(10_000 if runs is None else runs))

    def seconds(query: str, rows: int) -> float:
        if next(left, None) is None:
            raise ChildFailed("Flink ended")
        return 20.0 + rows / rate / (2 if query == "source-only" else 1)

    yield SimpleNamespace(seconds=seconds)


@pytest.mark.parametrize(("ours", "met"), [(8.01e6, True), (7.99e6, False)])
def test_keyed_sum_must_be_eight_times_flink(ours: float, met: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rates(monkeypatch, ours, lambda *arguments: flink_of(1e6))
    result = keyed_sum.run(TOLD)
    assert result.met is met
    assert result.passed is met
    assert result.skipped == ()
    assert median(result, "ratio to Flink") == pytest.approx(ours / 1e6)
    assert median(result, "ratio to Flink, net of sources") == pytest.approx(ours / 1e6)
    assert median(result, "Spark Structured Streaming") == 5e6


@pytest.mark.parametrize("runs", [0, 10], ids=["from the start", "in the second round"])
def test_keyed_sum_without_flink_measures_headgate_and_is_not_met(runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rates(monkeypatch, 9e6, lambda *arguments: flink_of(1e6, runs))
    result = keyed_sum.run(TOLD)
    assert result.met is False
    assert result.passed is False
    assert [(each.what, each.reason) for each in result.skipped] == [("Flink", "Flink ended")]
    names = [figure.name for figure in result.figures]
    assert names == ["Headgate", "Headgate, source only", "Spark Structured Streaming"]
    assert [len(figure.values) for figure in result.figures] == [1, 1, 1]


def test_keyed_sum_without_spark_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_sizes: int) -> list[float]:
        raise ChildFailed("no Java")

    rates(monkeypatch, 9e6, lambda *arguments: flink_of(1e6))
    monkeypatch.setattr(keyed_sum, "spark_rates", fail)
    result = keyed_sum.run(TOLD)
    assert result.met is True
    assert result.passed is False
    assert [(each.what, each.reason) for each in result.skipped] == [("Spark Structured Streaming", "no Java")]


@pytest.mark.parametrize(
    ("read", "crossed", "raised"),
    [
        (1_000, ROW_BYTES * 500, False),
        (1_000, ROW_BYTES * 500 - 1, True),
        (999, ROW_BYTES * 1_000, True),
    ],
)
def test_half_of_the_rows_must_cross_a_socket(
    read: int, crossed: int, raised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = SimpleNamespace(rows_in=read, metrics={"remote_bytes": crossed})
    monkeypatch.setattr(keyed_job.hg.StreamEnvironment, "execute", lambda env, name: result)  # type: ignore[attr-defined]
    expected = pytest.raises(HeadgateError, match=f"read {read:,} rows of 1,000; {crossed:,} bytes crossed")
    with expected if raised else nullcontext():
        assert keyed_sum_seconds(1_000) >= 0


def lateness_of(milliseconds: float) -> Any:
    """Return a histogram with a single value, which is each of its percentiles."""
    histogram = new_histogram()
    histogram.record_value(round(milliseconds * MS))
    return histogram


def _paced_latencies(monkeypatch: pytest.MonkeyPatch, tenth: float, half: float, before: float, beside: float) -> None:
    """Let each load have the same latency in each round, and half of it 500 ms with cores that may sleep."""
    seen: list[float] = []
    awake: list[bool] = []

    @contextmanager
    def cores_awake() -> Iterator[bool]:
        awake.append(True)
        yield True
        awake.pop()

    def run_paced(rows: int, rate: float, _folder: object, _buffer_timeout: str) -> None:
        assert rows == round(rate * 20)
        seen.append((tenth if rate < 3e5 else half) if awake else 500.0)

    monkeypatch.setattr(latency, "keyed_sum_seconds", lambda rows: 3.0 + rows / 1e6)
    monkeypatch.setattr(latency, "cores_awake", cores_awake)
    monkeypatch.setattr(latency, "lateness", lambda seconds: lateness_of(before))
    monkeypatch.setattr(latency, "lateness_beside", lambda: nullcontext(lateness_of(beside)))
    monkeypatch.setattr(latency, "run_paced", run_paced)
    monkeypatch.setattr(latency, "read_histogram", lambda folder: lateness_of(seen[-1]))


@pytest.mark.parametrize(
    ("tenth", "half", "before", "beside", "met"),
    [
        (9.9, 9.9, 0.1, 0.1, True),
        (10.1, 9.9, 0.1, 0.1, False),
        (9.9, 10.1, 0.1, 0.1, False),
        (9.9, 29.0, 10.0, 0.1, True),  # the timer before the load
        (9.9, 29.0, 0.1, 10.0, True),  # the timer beside the load
        (9.9, 31.0, 10.0, 10.0, False),
    ],
)
def test_latency_must_be_below_the_target_or_the_noise(
    *, tenth: float, half: float, before: float, beside: float, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load's 99th percentile is below 10 ms, or below three times the timer's. Sleeping cores do not count."""
    _paced_latencies(monkeypatch, tenth, half, before, beside)
    result = latency.run(TOLD)
    assert result.met is met
    assert median(result, "p99 at 50%") == pytest.approx(half, rel=0.01)
    assert median(result, "p99 at 50%, cores asleep when idle") == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize(
    ("half", "before", "met", "passed"),
    [(3.8, 0.9, True, True), (4.0, 0.9, False, False), (3.8, 1.1, True, False)],
    ids=["met", "missed", "noisy"],
)
def test_the_adaptive_latency_may_be_a_little_above_the_idle_timer(
    *, half: float, before: float, met: bool, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _paced_latencies(monkeypatch, half, half, before, 10.0)
    result = latency_adaptive.run(TOLD)
    assert (result.met, result.passed) == (met, passed)
    assert result.settings["p99 of the rounds at 50%, ms"].count(",") == 4, "five rounds"


BOUND = 100 * MB + hg.Config().network_memory + PENDING_BUDGET + slow_sink.ALLOWANCE


@pytest.mark.parametrize(
    ("worker", "driver", "met"),
    [
        (BOUND, 80 * MB + slow_sink.ALLOWANCE, True),
        (BOUND + 1, 80 * MB, False),
        (BOUND, 80 * MB + slow_sink.ALLOWANCE + 1, False),
    ],
)
@pytest.mark.parametrize("load", slow_sink.LOADS, ids=lambda load: load.name)
def test_slow_sink_must_stay_within_its_memory(
    load: slow_sink.Load, worker: int, driver: int, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load is compared with its start: its peaks with the largest worker and the last size of the driver then."""

    def observe(observed: slow_sink.Load, _seconds: float, rate: float | None) -> slow_sink._Memory:
        start = slow_sink._Memory([90 * MB, 100 * MB, 95 * MB], [200 * MB, 80 * MB])
        if rate is not None:
            return start
        peak, driver_peak = (worker, driver) if observed is load else (MB, MB)
        return slow_sink._Memory([MB, peak, MB], [MB, driver_peak, MB], remote_bytes=1)

    monkeypatch.setattr(slow_sink, "_observe", observe)
    assert slow_sink.run(TOLD).met is met


def test_slow_sink_refuses_a_run_in_which_no_bytes_crossed_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_sink, "_observe", lambda *arguments, **named: slow_sink._Memory([1], [1]))
    with pytest.raises(HeadgateError, match="one slow subtask: no bytes crossed a socket"):
        slow_sink.run(TOLD)


@pytest.mark.parametrize(
    ("with_", "noise", "met", "pairs"),
    [
        (1.01, 0.0, True, metrics_cost.FEWEST),
        (1.03, 0.0, False, metrics_cost.FEWEST),
        (1.0, 0.1, False, metrics_cost.MOST),
    ],
)
def test_metrics_are_measured_in_pairs_until_their_cost_is_known(
    *, with_: float, noise: float, met: bool, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise, every other pair costs more."""
    asked: list[int] = []

    class MetricsPair:
        def __enter__(self) -> MetricsPair:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def processor_seconds(self, rows: int) -> Mapping[bool, float]:
            asked.append(rows)
            pair = (len(asked) - 2) // (2 * metrics_cost.JOBS)
            cost = with_ + (noise if pair % 2 else -noise)
            return {True: 3.0 + rows * 1e-6 * cost, False: 3.0 + rows * 1e-6}

    monkeypatch.setattr(metrics_cost, "MetricsPair", MetricsPair)
    result = metrics_cost.run(TOLD)
    assert result.met is met
    assert len(result.figures[0].values) == len(result.figures[1].values) == pairs
    assert median(result, "without metrics") == pytest.approx(1.0)
    sizes = metrics_cost.SIZES
    assert asked[:3] == [sizes.small, sizes.small, sizes.large], "the first pair of jobs does not count"
