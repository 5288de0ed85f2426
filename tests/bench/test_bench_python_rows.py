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
from headgate.bench.state_writes import OTHERS, VALUES, other_cost, write_cost
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
    monkeypatch.setattr(python_rows, "other_cost", lambda name, writes: 1.0)
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
    monkeypatch.setattr(python_rows, "other_cost", lambda name, writes: 1.0)
    result = python_rows.run(Options(quick=True, say=lambda text: None))
    assert [skipped.what for skipped in result.skipped] == ["Bytewax", "Spark transformWithStateInPandas"]
    assert result.met
    assert not result.passed


@pytest.mark.parametrize(("dear", "name"), [(pa.bool_(), "write of bool"), ("MapState.put", "MapState.put")])
def test_the_cost_of_every_write_counts(dear: pa.DataType | str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowTask, "alone", lambda task, rows: rows * 0.1e-6)
    monkeypatch.setattr(RowTask, "in_a_job", lambda task, rows: 1 + rows * 1e-6)
    monkeypatch.setattr(python_rows, "Bytewax", lambda say: Peer(1e-4))
    monkeypatch.setattr(python_rows, "spark_rates", lambda *sizes: [1.0])
    costs: dict[Any, float] = dict.fromkeys([*VALUES, *OTHERS], 1.4)
    for cost in ("write_cost", "other_cost"):
        monkeypatch.setattr(python_rows, cost, lambda written, writes: costs[written])
    assert python_rows.run(Options(quick=True, say=lambda text: None)).met
    costs[dear] = 1.6
    result = python_rows.run(Options(quick=True, say=lambda text: None))
    assert not result.met
    assert {figure.name: figure.median for figure in result.figures}[name] == 1.6


#: Every type of Arrow whose values a state stores as they are, by the name that Arrow gives it.
PLAIN_TYPES = {
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("halffloat", "float", "double", "bool", "decimal128(10, 2)", "decimal256(40, 2)"),
    *("string", "large_string", "binary", "large_binary", "fixed_size_binary[5]"),
    *("date32[day]", "date64[ms]", "time32[s]", "time32[ms]", "time64[us]", "time64[ns]"),
    *(f"timestamp[{unit}{zone}]" for unit in ("s", "ms", "us", "ns") for zone in ("", ", tz=UTC")),
    *(f"duration[{unit}]" for unit in ("s", "ms", "us", "ns")),
}


def test_writes_of_every_plain_type_are_measured() -> None:
    assert {str(kind) for kind in VALUES} == PLAIN_TYPES
    assert all(write_cost(kind, 100) > 0 for kind in VALUES)
    assert all(other_cost(name, 100) > 0 for name in OTHERS)


def test_no_measured_value_needs_arrow() -> None:
    """A value that Arrow must convert raises Unfit, and takes ten times as long."""
    for kind, value in VALUES.items():
        if kind == pa.float16():
            continue  # an older pyarrow has it as a number of NumPy
        assert StoredValues(kind, "state")._take(pa.array([value], kind)[0].as_py()) is not None


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
