"""The case `checkpoint` with small sizes: it measures what it claims. Speed is not tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.bench import checkpoint, recovery
from headgate.bench.arrivals import Arrivals, arrivals
from headgate.bench.case_options import Options
from headgate.bench.checkpoint_gap import Gaps, gaps, longest_gap
from headgate.bench.keys_job import KINDS
from headgate.bench.report import Figure
from tests.connectors.conftest import writer_context

SCHEMA = pa.schema({"v": pa.int64()})


def test_arrivals_are_recorded_for_each_attempt_and_subtask(tmp_path: Path) -> None:
    for attempt, subtask, values in [(0, 0, [1, 5]), (0, 1, [2]), (1, 0, [7])]:
        sink = Arrivals(tmp_path, "v")
        writer = sink.writer(writer_context(SCHEMA, subtask=subtask, attempt=attempt))
        for value in values:
            writer.write(pa.RecordBatch.from_pydict({"v": [0, value]}, SCHEMA))
        writer.close()
    assert [[number for _, number in came] for came in arrivals(tmp_path)] == [[1, 5], [2], [7]]
    assert [[number for _, number in came] for came in arrivals(tmp_path, 1)] == [[7]]
    (first, second), *_ = arrivals(tmp_path)
    assert first[0] <= second[0]


def test_the_longest_gap_counts_gaps_that_overlap_the_span() -> None:
    times = [0.0, 1.0, 1.5, 4.0, 4.5]
    assert longest_gap(times, 1.2, 1.4) == 0.5
    assert longest_gap(times, 1.2, 2.0) == 2.5
    assert longest_gap(times, 0.0, 1.0) == 1.0
    assert longest_gap([], 1.0, 3.0) == 2.0


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.name)
def test_gaps_are_those_of_checkpoints_with_all_keys(kind: object) -> None:
    found = gaps(kind, 1, keys=1_000, rate=20_000.0)  # type: ignore[arg-type]
    assert len(found.during) == len(found.between) == len(found.durations) == 1
    assert found.during[0] > 0
    assert found.sizes[0] > 1_000 * 8


def test_the_job_recovers_from_a_killed_process() -> None:
    with recovery._on_processes() as environment:
        (seconds,) = recovery.recoveries(environment, recovery.taskmanager_of, 1)
    assert 0 < seconds < 60


@pytest.mark.parametrize(
    ("rate", "gap", "seconds"), [(0.95, 0.05, 1.0), (0.85, 0.05, 1.0), (0.95, 0.2, 1.0), (1, 0, 9)]
)
def test_the_verdict(rate: float, gap: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def keyed_sum(rows: int, **options: Any) -> float:
        return 3.0 + rows * 1e-6 / (rate if options else 1)

    monkeypatch.setattr(checkpoint, "keyed_sum_seconds", keyed_sum)
    monkeypatch.setattr(checkpoint, "gaps", lambda *arguments: Gaps([0.01, gap, 0.01], [0.01], [0.5], [1e6]))
    kill = recovery.ON_PROCESSES[0]
    monkeypatch.setattr(recovery, "figures", lambda options: {kill: Figure("recovery", "s", (seconds,))})
    result = checkpoint.run(Options(quick=False, say=lambda text: None))
    figures = {figure.name: figure for figure in result.figures}
    assert result.met is ((rate, gap, seconds) == (0.95, 0.05, 1.0))
    assert figures["rate kept"].values == pytest.approx([rate] * checkpoint.ROUNDS)
    assert "costs under 10%" in result.target
    assert "TaskManager, local processes 2 s" in result.target
