"""The cases on the real runtime, with small sizes: they measure what they claim. Speed is not tested."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from headgate.bench import many_keys as keys
from headgate.bench import slow_sink
from headgate.bench.case_options import Options
from headgate.bench.due_times import DueTimes, read_histogram
from headgate.bench.keyed_job import keyed_sum_seconds, run_paced, source_seconds
from headgate.bench.keyed_sum import Sizes, _figures, _Rates
from headgate.bench.keys_job import KINDS, KeyedRun, KeyKind, run_keyed
from headgate.bench.metrics_cost import MetricsPair
from headgate.operators.operator import Operator, OperatorContext


def test_the_rate_excludes_start_up() -> None:
    assert Sizes(1000, 5000).rate(lambda rows: 7.0 + rows / 200) == pytest.approx(200)


def test_ratio_net_of_sources() -> None:
    rates = _Rates(ours=[10.0], our_source=[20.0], flink=[1.0], flink_source=[2.0], flink_two_phase=[2.0])
    figures = {figure.name: figure.median for figure in _figures(rates)}
    assert figures["ratio to Flink"] == 10
    assert figures["ratio to Flink, net of sources"] == pytest.approx(20 / 2)


def test_keyed_sum_and_its_source_run_in_processes() -> None:
    assert keyed_sum_seconds(100_000) > 0  # raises if fewer than half of the rows crossed a socket
    assert source_seconds(100_000) > 0


def test_jobs_with_and_without_metrics_run_in_processes_of_their_own() -> None:
    with MetricsPair() as pair:
        seconds = pair.processor_seconds(100_000)
    assert set(seconds) == {True, False}
    assert min(seconds.values()) > 0


def test_keys_of_an_integer_and_a_string_are_held_and_counted() -> None:
    run = run_keyed(KINDS[-1], 300, 20_000)
    assert run.seconds > 0
    assert run.state_keys == 300
    assert run.bytes_per_key > 8


@pytest.mark.parametrize(("slow", "met"), [("", True), ("string", False)])
def test_every_kind_of_key_must_keep_a_quarter_of_the_rate(
    slow: str, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(kind: KeyKind, keys: int, rows: int) -> KeyedRun:
        per_row = 1e-6 if keys == 1_000 else 5e-6 if kind.name == slow else 2e-6
        return KeyedRun(3.0 + rows * per_row, rows * 50, rows)

    monkeypatch.setattr(keys, "run_keyed", run)
    result = keys.run(Options(quick=False, say=lambda text: None))
    figures = {figure.name: figure for figure in result.figures}
    assert result.met is met
    assert "at least 0.25 of the rate with 1,000" in result.target
    assert figures["int: ratio"].values == pytest.approx([0.5] * keys.ROUNDS)
    assert figures["string: ratio"].median == pytest.approx(0.5 if met else 0.2)
    assert figures["two columns: 1,000 keys"].median == pytest.approx(1e6)
    assert figures["int: bytes per key then"].median == 50


def test_each_16th_row_has_a_latency(tmp_path: Path) -> None:
    run_paced(30_000, 100_000.0, tmp_path)
    histogram = read_histogram(tmp_path)
    assert histogram.get_total_count() == pytest.approx(30_000 / 16, abs=1)  # each of two subtasks counts
    assert 0 < histogram.get_value_at_percentile(50) < 4_000_000


class Nothing:
    """The end of the chain, which drops rows."""

    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


def test_latency_runs_from_the_due_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.repeat([1_000_000, 1_000_400, 999_000], 16)
    rows = pa.record_batch({"ts": pa.array(times).cast(pa.timestamp("us", tz="UTC"))})
    monkeypatch.setattr("headgate.bench.due_times.time", SimpleNamespace(time=lambda: 1.0015))
    operator = DueTimes(Operator, "ts", str(tmp_path))
    operator.output = operator._inner.output = Nothing()
    operator.open(OperatorContext("job", "window", 0, 1))
    for first, last in [(0, 1), (1, 15), (15, 48)]:  # one batch has no counted row
        operator.process(rows.slice(first, last - first))
    operator.end_input()
    counts = np.load(tmp_path / "0.npy")
    assert np.flatnonzero(counts).tolist() == [1100 // 8, 1500 // 8, 2500 // 8]
    assert counts.sum() == 3


def test_slow_sink_samples_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_sink, "SAMPLE_EVERY", 0.05)
    memory = slow_sink._observe(slow_sink.LOADS[2], 2.0, rate=None)
    assert memory.remote_bytes > slow_sink.BIG_ROW
    assert len(memory.workers) == len(memory.driver) > 5
    assert max(memory.workers) < 1e9


def test_big_rows_are_pure() -> None:
    whole = slow_sink.big_rows(0, 5)
    assert whole.slice(3, 2).equals(slow_sink.big_rows(3, 2))
    assert len(whole["value"][4].as_py()) == slow_sink.BIG_ROW
