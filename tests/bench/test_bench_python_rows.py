"""The case `rows`: its tasks in small, and its verdict. Speed is not tested."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headgate.bench import python_rows
from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.rows_job import BATCH, KEYS, TASKS, RowTask, numbered_rows
from headgate.bench.state_writes import VALUES, write_cost
from headgate.operators.keyed.state_values import StoredValues
from tests.operators.window_rig import attach


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_runs_alone_and_in_a_job(task: RowTask) -> None:
    small = replace(task, batches=2)
    assert small.alone(2 * BATCH) > 0
    assert small.in_a_job(2 * BATCH) > 0


class Peer:
    """Bytewax, which takes `seconds` for a row."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def seconds(self, _task: str, rows: int, *, timed: bool) -> float:
        return 1 + rows * self._seconds


@pytest.mark.parametrize(
    ("slow", "seconds", "peer", "met"),
    [
        ("", 0.0, 1e-4, True),
        ("map", 2.1e-6, 1e-4, False),
        ("process_element", 2.4e-6, 2.5e-6, True),
        ("process_element", 2.4e-6, 2.3e-6, False),
        ("vectorised, a million strings", 0.34e-6, 1e-4, False),
    ],
)
def test_every_operator_must_reach_its_rate_and_one_that_of_bytewax(
    slow: str, seconds: float, peer: float, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(task: RowTask, rows: int) -> float:
        return rows * (seconds if task.name == slow else 0.1e-6)

    monkeypatch.setattr(RowTask, "alone", alone)
    monkeypatch.setattr(RowTask, "in_a_job", lambda task, rows: 1 + rows * 1e-6)
    monkeypatch.setattr(python_rows, "Bytewax", lambda say: Peer(peer))
    monkeypatch.setattr(python_rows, "spark_rates", lambda *sizes: [1.0])
    monkeypatch.setattr(python_rows, "write_cost", lambda kind, writes: 1.0)
    result = python_rows.run(Options(quick=False, say=lambda text: None))
    assert result.met is met
    figures = {figure.name: figure.median for figure in result.figures}
    of_operator = figures["process_element: ratio of the operator alone to Bytewax, at least 1"]
    assert of_operator == pytest.approx(peer / (seconds if slow == "process_element" else 0.1e-6))
    assert figures["process_element: ratio of the job to Bytewax"] == pytest.approx(peer / 1e-6)


def test_without_bytewax_and_spark_headgate_is_measured_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: Any) -> Any:
        raise ChildFailed("not here")

    monkeypatch.setattr(RowTask, "alone", lambda task, rows: rows * 0.1e-6)
    monkeypatch.setattr(RowTask, "in_a_job", lambda task, rows: 1 + rows * 1e-6)
    monkeypatch.setattr(python_rows, "Bytewax", missing)
    monkeypatch.setattr(python_rows, "spark_rates", missing)
    monkeypatch.setattr(python_rows, "write_cost", lambda kind, writes: 1.0)
    result = python_rows.run(Options(quick=True, say=lambda text: None))
    assert [skipped.what for skipped in result.skipped] == ["Bytewax", "Spark transformWithStateInPandas"]
    assert result.met
    assert not result.passed


def test_the_cost_of_a_write_counts_for_every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowTask, "alone", lambda task, rows: rows * 0.1e-6)
    monkeypatch.setattr(RowTask, "in_a_job", lambda task, rows: 1 + rows * 1e-6)
    monkeypatch.setattr(python_rows, "Bytewax", lambda say: Peer(1e-4))
    monkeypatch.setattr(python_rows, "spark_rates", lambda *sizes: [1.0])
    costs = dict.fromkeys(VALUES, 1.4)
    monkeypatch.setattr(python_rows, "write_cost", lambda kind, writes: costs[kind])
    assert python_rows.run(Options(quick=True, say=lambda text: None)).met
    costs[pa.bool_()] = 1.6
    result = python_rows.run(Options(quick=True, say=lambda text: None))
    assert not result.met
    assert {figure.name: figure.median for figure in result.figures}["write of bool"] == 1.6


def test_writes_of_every_plain_type_are_measured() -> None:
    assert all(write_cost(kind, 100) > 0 for kind in VALUES)
    assert all(StoredValues(kind, "state").is_plain for kind in VALUES)


def test_a_session_by_hand_ends_when_the_times_start_again() -> None:
    (task,) = (task for task in TASKS if task.name == "session by hand")
    operator = task._operator()
    kept = attach(operator)
    rows = numbered_rows(0, 5 * KEYS, timed=True)
    operator.process(rows)
    assert not kept.rows, "a key has a row each second"
    operator.process(rows)
    keys, counts, totals = zip(*kept.rows, strict=True)
    assert sorted(keys) == list(range(KEYS))
    assert sum(counts) == rows.num_rows
    assert sum(totals) == sum(rows["value"].to_pylist())
