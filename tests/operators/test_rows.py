"""Filter, projection and users' functions: their results, and the error for each mistake."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.errors import DataError, HeadgateError, JobCancelled, PlanError, UserFunctionError
from headgate.operators.operator import Operator, OperatorContext
from headgate.operators.rows import (
    ROWS_PER_BATCH,
    Filter,
    FilterRows,
    FlatMapRows,
    MapBatches,
    MapRows,
    Project,
    filter_predicate,
    result_schema,
    select_expressions,
    with_columns_expressions,
)
from headgate.operators.sql.expressions import HIDDEN_COLUMN

SCHEMA = pa.schema({"a": pa.int64(), "s": pa.string()})
BATCH = pa.record_batch({"a": [1, 2, None, 4], "s": ["x", None, "y", "z"]}, schema=SCHEMA)
TIMED = BATCH.append_column("__event_time__", pa.array([10, 20, 30, 40]))


class Collected:
    """An output that stores all it receives."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def emit_watermark(self, time: int) -> None:
        raise AssertionError("no watermark was sent")

    def emit_status(self, active: bool) -> None:
        raise AssertionError("no status was sent")


def run(operator: Operator, *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Return what an operator emits; it is unpickled first, as in a task."""
    operator = pickle.loads(cloudpickle.dumps(operator))
    output = operator.output = Collected()
    operator.open(OperatorContext("job", "operator", 0, 1))
    for batch in batches:
        operator.process(batch)
    operator.close()
    assert operator.rows_out == sum(batch.num_rows for batch in output.batches)
    assert all(batch.num_rows for batch in output.batches)
    return output.batches


def rows(operator: Operator, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in run(operator, *batches) for row in batch.to_pylist()]


def raises(operator: Operator, batch: pa.RecordBatch = BATCH) -> str:
    with pytest.raises(UserFunctionError) as caught:
        run(operator, batch)
    return caught.value.message


PREDICATES: list[Any] = [
    "a >= 2",
    pc.field("a") >= 2,
    lambda batch: pc.greater_equal(batch.column("a"), 2),
    lambda batch: batch.column("a").fill_null(0).to_numpy() >= 2,
]


@pytest.mark.parametrize("condition", PREDICATES)
@pytest.mark.parametrize("batch", [BATCH, TIMED])
def test_filter_keeps_what_is_true_with_all_columns(condition: Any, batch: pa.RecordBatch) -> None:
    operator = Filter(filter_predicate(condition, batch.schema), batch.schema)
    assert run(operator, batch) == [batch.take(pa.array([1, 3]))]


@pytest.mark.parametrize(
    "condition", ["a > 100", pc.field("a") > 100, lambda batch: np.zeros(len(batch), bool), "null"]
)
def test_filter_emits_nothing_if_no_row_matches(condition: Any) -> None:
    assert run(Filter(filter_predicate(condition, SCHEMA), SCHEMA), BATCH) == []


@pytest.mark.parametrize("condition", ["a = 1 or true", pc.scalar(True), lambda batch: np.ones(len(batch), bool)])
def test_filter_emits_the_whole_batch_if_all_rows_match(condition: Any) -> None:
    assert run(Filter(filter_predicate(condition, SCHEMA), SCHEMA), BATCH) == [BATCH]


def test_filter_does_not_show_the_hidden_column() -> None:
    seen: list[list[str]] = []

    def predicate(batch: pa.RecordBatch) -> Any:
        seen.append(batch.schema.names)
        return np.ones(len(batch), bool)

    operator = Filter(predicate, TIMED.schema)
    operator.output = Collected()
    operator.process(TIMED)
    assert seen == [["a", "s"]]
    assert operator.output.batches == [TIMED]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.ones(3, bool), "returned 3 values for a batch of 4 rows"),
        (np.ones(4), "NumPy array with one value per row, and returned ndarray of float64"),
        (np.ones((4, 1), bool), "ndarray of bool"),
        (pa.array([1, 0, 1, 0]), "and returned Int64Array"),
        (True, "and returned bool"),
        (None, "and returned NoneType"),
    ],
)
def test_filter_says_what_a_predicate_must_return(result: Any, words: str) -> None:
    def keep(_batch: pa.RecordBatch) -> Any:
        return result

    message = raises(Filter(keep, SCHEMA))
    assert message.startswith("filter: test_filter_says_what_a_predicate_must_return.<locals>.keep ")
    assert words in message


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("a + 1", "'a + 1' is int64, not a condition"),
        ("b > 1", "no column 'b'; the columns are: a, s"),
        (pc.field("b") > 1, "does not fit the columns a, s"),
        (pc.field("a") + 1, "does not fit the columns a, s"),
        (pc.field("s") > 1, "does not fit the columns a, s"),
        (5, "a function of a row (with rows=True) or of a batch, not int"),
        (
            type("Column", (), {"__module__": "pyspark.sql.column"})(),
            'not Column; instead of a Column of Spark write SQL, for example filter("x > 1")',
        ),
    ],
)
def test_a_wrong_condition_is_refused_before_anything_runs(condition: Any, words: str) -> None:
    with pytest.raises(PlanError) as caught:
        filter_predicate(condition, TIMED.schema)
    assert words in caught.value.message


def test_an_arrow_expression_that_fails_on_values_is_an_error() -> None:
    predicate = filter_predicate(pc.add_checked(pc.field("a"), (1 << 63) - 1) > 0, SCHEMA)
    with pytest.raises(DataError, match="overflow"):
        run(Filter(predicate, SCHEMA), BATCH)


def test_select() -> None:
    columns = select_expressions(TIMED.schema, "s", b="a * 2", schema="s = 'x'")
    schema = result_schema(columns)
    assert schema == pa.schema({"s": pa.string(), "b": pa.int64(), "schema": pa.bool_()})
    [batch] = run(Project(columns, schema), TIMED)
    assert batch.schema == schema
    assert batch["s"] == BATCH["s"]
    assert batch["b"].to_pylist() == [2, 4, None, 8]
    assert batch["schema"].to_pylist() == [True, None, False, False]


def test_select_of_constants_has_a_value_per_row() -> None:
    columns = select_expressions(SCHEMA, one="1", nothing="null")
    assert rows(Project(columns, result_schema(columns)), BATCH) == [{"one": 1, "nothing": None}] * 4


def test_with_columns_replaces_in_place_and_appends() -> None:
    columns = with_columns_expressions(TIMED.schema, a="a / 2", c="a + 1")
    schema = result_schema(columns)
    assert schema.names == ["a", "s", "__event_time__", "c"]
    [batch] = run(Project(columns, schema), TIMED)
    assert batch["a"].to_pylist() == [0.5, 1.0, None, 2.0]
    assert batch["c"].to_pylist() == [2, 3, None, 5], "expressions see the columns as they were"
    assert batch["__event_time__"] == TIMED["__event_time__"]


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        (lambda: select_expressions(TIMED.schema, "a", "b"), "no column 'b'; the columns are: a, s; an expression"),
        (lambda: select_expressions(SCHEMA, "a + 1"), 'select(total="a + b")'),
        (lambda: select_expressions(SCHEMA, "a", "a"), "column 'a' occurs twice"),
        (lambda: select_expressions(SCHEMA, "a", a="s"), "column 'a' occurs twice"),
        (lambda: select_expressions(SCHEMA), "at least one column"),
        (lambda: select_expressions(SCHEMA, b="q"), "no column 'q'"),
        (lambda: with_columns_expressions(SCHEMA, b="a + q"), "no column 'q'"),
        (lambda: with_columns_expressions(SCHEMA, b=1), "expected a SQL string, got int"),  # type: ignore[arg-type]
    ],
)
def test_wrong_columns_are_refused(choose: Callable[[], object], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        choose()
    assert words in caught.value.message


OUT = pa.schema({"n": pa.int64(), "t": pa.string()})


def out(n: list[int | None], t: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch({"n": n, "t": t}, schema=OUT)


def test_map_batches_takes_a_batch_a_list_or_none() -> None:
    results: list[Any] = [out([1], ["x"]), [out([2], ["y"]), out([], []), out([3], [None])], None, out([], []), []]
    remaining = iter(results)
    operator = MapBatches(lambda batch: next(remaining), OUT)
    operator.output = collected = Collected()
    for _ in results:
        operator.process(BATCH)
    assert [batch["n"].to_pylist() for batch in collected.batches] == [[1], [2], [3]]
    assert operator.rows_out == 3


def test_functions_get_the_users_columns_read_only() -> None:
    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert batch.schema.names == ["a", "s"]
        assert not batch["a"].fill_null(0).to_numpy().flags.writeable
        return batch

    assert run(MapBatches(look, SCHEMA), TIMED) == [BATCH]
    assert rows(MapRows(lambda row: row, SCHEMA), TIMED) == BATCH.to_pylist()
    assert rows(FlatMapRows(lambda row: [row], SCHEMA), TIMED) == BATCH.to_pylist()


def test_results_have_the_declared_schema() -> None:
    declared = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    [batch] = run(MapBatches(lambda batch: pa.record_batch({"n": [1]}), declared), BATCH)
    assert batch.schema.equals(declared, check_metadata=True)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (pa.record_batch({"n": [1]}), "column t: expected string, got none"),
        (pa.record_batch({"n": [1], "t": [1]}), "column t: expected string, got int64"),
        (pa.record_batch({"n": pa.array([1], pa.int32()), "t": ["a"]}), "column n: expected int64, got int32"),
        (pa.record_batch({"n": [1], "t": ["a"], "q": [1]}), "column q: expected none, got int64"),
        (pa.record_batch({"t": ["a"], "n": [1]}), "columns in another order: expected ['n', 't'], got ['t', 'n']"),
        (pa.record_batch([[1], ["a"], ["a"]], ["n", "t", "t"]), "column t occurs twice"),
        (pa.table({"n": [1], "t": ["a"]}), "and returned Table; use table.to_batches()"),
        ([out([1], ["a"]), {"n": 1}], "and returned dict"),
        ({"n": [1]}, "must return a pyarrow RecordBatch, a list of them or None, and returned dict"),
        ({"n": 1}, "or for one row at a time use map"),
        (pd.DataFrame({"n": [1]}), 'and returned DataFrame; write map_batches(fn, schema=..., frame="pandas")'),
        (iter([]), "; return a list of the batches"),
    ],
)
def test_map_batches_says_what_is_wrong_column_by_column(result: Any, words: str) -> None:
    def transform(_batch: pa.RecordBatch) -> Any:
        return result

    message = raises(MapBatches(transform, OUT))
    assert "test_map_batches_says_what_is_wrong_column_by_column.<locals>.transform " in message
    assert words in message


def test_nulls_in_a_column_without_nulls_are_an_error() -> None:
    declared = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    words = "returned nulls in column n, which schema= declares as not null"
    assert words in raises(MapBatches(lambda batch: pa.record_batch({"n": [1, None]}), declared))
    assert words in raises(MapRows(lambda row: {"n": None}, declared))


def test_map_rows() -> None:
    operator = MapRows(lambda row: {"t": str(row["a"]), "n": len(row["s"] or "")}, OUT)
    assert rows(operator, BATCH, BATCH.slice(0, 1)) == [
        {"n": 1, "t": "1"},
        {"n": 0, "t": "2"},
        {"n": 1, "t": "None"},
        {"n": 1, "t": "4"},
        {"n": 1, "t": "1"},
    ]


def test_flat_map_rows_with_a_generator() -> None:
    def repeat(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for n in range(row["a"] or 0):
            yield {"n": n, "t": row["s"]}

    got = rows(FlatMapRows(repeat, OUT), BATCH)
    assert [row["n"] for row in got] == [0, 0, 1, 0, 1, 2, 3]
    assert run(FlatMapRows(lambda row: [], OUT), BATCH) == []


def test_flat_map_rows_emits_batches_of_bounded_size() -> None:
    many = [{"n": 1, "t": "x"}] * ROWS_PER_BATCH
    assert [batch.num_rows for batch in run(FlatMapRows(lambda row: many, OUT), BATCH)] == [ROWS_PER_BATCH] * 4


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"n": 1}, "column t is missing; the row is {'n': 1} (dict)"),
        ({"n": 1, "t": "a", "q": 2}, "column q is not declared"),
        ({"n": "a", "t": "a"}, "'a' (str) in column n, which schema= declares int64"),
        ({"n": 1.5, "t": "a"}, "1.5 (float) in column n"),
        ({"n": Decimal(2), "t": "a"}, "Decimal is not converted to int64"),
        ({"n": 2**63, "t": "a"}, "9223372036854775808 (int) in column n"),
        ({"n": 1, "t": object}, "in column t, which schema= declares string"),
        (None, "and made None (NoneType); to drop rows, use filter or flat_map"),
        ([1], "must make rows that are dicts, and made [1] (list)"),
        ({"n": 1, "u" * 500: 1}, "... (dict)"),
    ],
)
def test_a_wrong_row_is_shown(row: Any, words: str) -> None:
    assert words in raises(MapRows(lambda _: row, OUT))
    assert words in raises(FlatMapRows(lambda _: [row], OUT))


@pytest.mark.parametrize("result", [None, {"n": 1, "t": "a"}, "text", 5])
def test_flat_map_must_return_an_iterable(result: Any) -> None:
    assert "must return an iterable of dicts (a list, or yield them), and returned" in raises(
        FlatMapRows(lambda row: result, OUT)
    )


def boom(_argument: Any) -> Any:
    raise KeyError("no such thing")


def late_boom(argument: Any) -> Iterator[dict[str, Any]]:
    yield {"n": 1, "t": "a"}
    boom(argument)


def leave(_argument: Any) -> Any:
    raise SystemExit(3)


def cancelled(_argument: Any) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("operator", "first_frame"),
    [
        (Filter(boom, SCHEMA), "in boom"),
        (MapBatches(boom, OUT), "in boom"),
        (MapRows(boom, OUT), "in boom"),
        (FlatMapRows(boom, OUT), "in boom"),
        (FlatMapRows(late_boom, OUT), "in late_boom"),
        (MapBatches(leave, OUT), "in leave"),
        (MapBatches(cancelled, OUT), "in cancelled"),
    ],
)
def test_the_traceback_begins_at_the_users_frame(operator: Operator, first_frame: str) -> None:
    message = raises(operator)
    lines = message.split("\n")
    assert (
        " raised KeyError: 'no such thing'" in lines[0]
        or "raised SystemExit: 3" in lines[0]
        or "raised CancelledError" in lines[0]
    )
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[2].endswith(first_frame)
    assert __file__ in lines[2]


def test_a_function_with_wrong_parameters_is_an_error() -> None:
    message = raises(MapBatches(lambda: None, OUT))
    assert "takes 0 positional arguments but 1 was given" in message
    assert "Traceback" not in message


def test_headgates_own_errors_pass_through_a_users_function() -> None:
    def function(_batch: pa.RecordBatch) -> Any:
        raise DataError("mine")

    with pytest.raises(HeadgateError) as caught:
        run(MapBatches(function, OUT), BATCH)
    assert type(caught.value) is DataError
    assert caught.value.message == "mine"


def test_the_cancel_of_a_job_within_a_function_does_not_cancel_this_job() -> None:
    def function(_batch: pa.RecordBatch) -> Any:
        raise JobCancelled("job 'inner' was cancelled")

    assert "raised JobCancelled: job 'inner' was cancelled" in raises(MapBatches(function, OUT))


TAKES_A_ROW = {
    "compares": lambda row: row["n"] > 1,
    "equals": lambda row: row["n"] == 1,
    "calculates": lambda row: row["n"] % 2 == 0,
    "looks for a method": lambda row: row["n"].startswith("x"),
    "asks for an attribute": lambda row: row.n > 1,
    "asks whether": lambda row: row["n"] is not None,
}


@pytest.mark.parametrize("function", TAKES_A_ROW.values(), ids=TAKES_A_ROW)
def test_a_predicate_that_takes_a_batch_for_a_row_gets_a_hint(function: Any) -> None:
    batch = pa.record_batch({"n": [1, 2]})
    operator = Filter(filter_predicate(function, batch.schema), batch.schema)
    with pytest.raises(UserFunctionError, match=r"for a function of one row, as a dict, write filter\(fn, rows=True\)"):
        operator.process(batch)


def test_other_errors_of_a_predicate_get_no_hint() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    for wrong in (lambda batch: 1 // 0, lambda batch: {}["n"], lambda batch: None + 1):  # type: ignore[index, operator]
        with pytest.raises(UserFunctionError) as caught:
            Filter(filter_predicate(wrong, batch.schema), batch.schema).process(batch)
        assert "rows=True" not in caught.value.message


TAKES_SOMETHING_ELSE = {
    "pandas": (
        MapBatches,
        lambda frame: frame.assign(n=1),
        'for pandas write map_batches(fn, schema=..., frame="pandas")',
    ),
    "columns of pandas": (MapBatches, lambda frame: frame["a"].fillna(0), 'frame="pandas"'),
    "a row": (MapBatches, lambda row: {"n": row["a"] * 2}, "for one row at a time use map"),
    "a batch": (MapRows, lambda batch: batch.column("a"), "gets one row, as a dict; for batches use map_batches"),
    "a batch, many rows": (FlatMapRows, lambda batch: batch.to_pylist(), "as a dict; for batches use map_batches"),
}


@pytest.mark.parametrize(("operator", "function", "hint"), TAKES_SOMETHING_ELSE.values(), ids=TAKES_SOMETHING_ELSE)
def test_a_function_that_mistakes_what_it_gets_gets_a_hint(operator: Any, function: Any, hint: str) -> None:
    assert hint in raises(operator(function, OUT))


def test_other_errors_of_a_function_get_no_hint() -> None:
    for operator in (MapBatches, MapRows, FlatMapRows):
        assert raises(operator(lambda _given: len(5), OUT)).endswith("has no len()"), operator  # type: ignore[arg-type]


def test_a_predicate_of_rows() -> None:
    batch = pa.record_batch({"n": [1, None, 3, 4], HIDDEN_COLUMN: [0, 0, 0, 0]})
    seen: list[Any] = []

    def odd(row: dict[str, Any]) -> bool | None:
        seen.append(row)
        return None if row["n"] is None else np.bool_(row["n"] % 2)  # type: ignore[return-value]

    operator = FilterRows(filter_predicate(odd, batch.schema, True), batch.schema)
    output = operator.output = Collected()
    operator.process(batch)
    assert [row["n"] for kept in output.batches for row in kept.to_pylist()] == [1, 3]
    assert seen == [{"n": 1}, {"n": None}, {"n": 3}, {"n": 4}]
    with pytest.raises(UserFunctionError, match="must return True, False or None for a row, and returned 1"):
        FilterRows(filter_predicate(lambda row: row["n"], batch.schema, True), batch.schema).process(batch)
    with pytest.raises(PlanError, match="rows=True is for a function of a row, not for 'n > 1'"):
        filter_predicate("n > 1", batch.schema, True)
