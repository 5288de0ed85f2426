"""Running aggregates emit a row for each key that a batch changed, or only the last row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import DataError, PlanError
from headgate.operators.aggregates import aggregates as hg
from headgate.operators.aggregates.running_aggregate import RunningAggregate, running_schema
from headgate.operators.operator import MAX_TIME, OperatorContext
from headgate.state.snapshot import Snapshot
from tests.examples import examples
from tests.operators.window_rig import Kept, attach, rows_of

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("t", pa.timestamp("us"))])
SPECS = (("n", hg.count()), ("total", hg.sum("value")))


def batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)


def build(specs: Any = SPECS, keys: tuple[str, ...] = ("key",), **options: Any) -> tuple[RunningAggregate, Kept]:
    operator = RunningAggregate(keys, specs, input_schema=SCHEMA, **options)
    return operator, attach(operator)


ROWS = st.tuples(st.sampled_from(["a", "b", "", None]), st.one_of(st.none(), st.integers(-9, 9)), st.none())


@settings(max_examples=examples(50))
@given(st.lists(st.lists(ROWS, min_size=1, max_size=8), max_size=6))
def test_each_batch_emits_the_keys_that_it_changed(batches: list[list[tuple[Any, ...]]]) -> None:
    running, kept = build()
    final, at_last = build(final=True)
    model: dict[str | None, list[int | None]] = {}
    for number, rows in enumerate(batches):
        running.process(batch(rows))
        final.process(batch(rows))
        for key, value, _ in rows:
            model.setdefault(key, []).append(value)
        assert sorted(rows_of(kept.batches[number]), key=repr) == sorted(
            (expected(key, model[key]) for key in {row[0] for row in rows}), key=repr
        )
    assert at_last.rows == []
    for operator in (running, final):
        operator.process_watermark(MAX_TIME)
        operator.end_input()
    assert len(kept.batches) == len(batches)
    assert sorted(at_last.rows, key=repr) == sorted((expected(key, model[key]) for key in model), key=repr)


def expected(key: str | None, values: list[int | None]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    return key, len(values), sum(known) if known else None


def test_first_and_last_go_by_event_time_across_batches() -> None:
    specs = (("first", hg.first("value")), ("last", hg.last("value")))
    operator, kept = build(specs, time_column="t")
    operator.process(batch([("a", 5, 50), ("a", None, 40), ("b", 1, 1)]))
    operator.process(batch([("a", 3, 45), ("b", 2, 0), ("a", 6, 60)]))
    assert sorted(rows_of(kept.batches[0])) == [("a", None, 5), ("b", 1, 1)]
    assert sorted(rows_of(kept.batches[1])) == [("a", None, 6), ("b", 2, 1)]


def test_without_keys_there_is_one_row_for_each_batch() -> None:
    operator, kept = build(keys=())
    operator.process(batch([("a", 1, None), ("b", 2, None)]))
    operator.process(batch([("c", 3, None)]))
    assert kept.rows == [(2, 3), (3, 6)]
    assert operator.schema == pa.schema([pa.field("n", pa.int64(), nullable=False), ("total", pa.int64())])


def test_watermarks_pass() -> None:
    operator, kept = build()
    operator.process_watermark(5)
    assert kept.events == [5]


def test_final_rows_come_in_bounded_batches() -> None:
    operator, kept = build(final=True)
    for begin in range(0, 80_000, 20_000):
        operator.process(batch([(str(key), 1, None) for key in range(begin, begin + 20_000)]))
    operator.end_input()
    assert [part.num_rows for part in kept.batches] == [65_536, 80_000 - 65_536]
    assert operator.state_keys() == 80_000
    assert operator.state_bytes() / operator.state_keys() < 200


def test_first_without_event_time_is_refused() -> None:
    with pytest.raises(PlanError, match=r"x=first\('value'\) needs event time, which this stream does not have"):
        running_schema(("key",), (("x", hg.first("value")),), SCHEMA)
    with pytest.raises(PlanError, match=r"x=last\('value'\) needs event time"):
        build((("x", hg.last("value")),))


def test_a_null_event_time_is_an_error_only_for_first_and_last() -> None:
    operator, _ = build((("x", hg.first("value")),), time_column="t")
    with pytest.raises(DataError, match="'t' is null in 1 of 2 rows, and first and last need event times"):
        operator.process(batch([("a", 1, None), ("a", 1, 1)]))
    operator, kept = build(time_column="t")
    operator.process(batch([("a", 1, None)]))
    assert kept.rows == [("a", 1, 1)]


def opened(final: bool = True, subtask: int = 0, parallelism: int = 1) -> tuple[RunningAggregate, Kept]:
    operator, kept = build(keys=(), final=final)
    operator.open(OperatorContext("job", "operator", subtask, parallelism, 128))
    return operator, kept


@pytest.mark.parametrize("final", [True, False])
def test_without_rows_one_subtask_emits_one_row_for_the_global_key(final: bool) -> None:
    found = []
    for subtask in range(3):
        operator, kept = opened(final, subtask, 3)
        operator.end_input()
        found += kept.rows
    assert found == [(0, None)]


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("came", [True, False])
def test_the_row_over_no_rows_is_emitted_once_through_a_restart(final: bool, came: bool) -> None:
    """The checkpoint is taken before or after the end of the input."""
    operator, _ = opened(final)
    if came:
        operator.process(batch([("a", 1, None)]))
    before = operator.snapshot()
    operator.end_input()
    after = operator.snapshot()
    wanted = {"before": [] if came and not final else [(1, 1) if came else (0, None)], "after": []}
    old = Snapshot(after.tables, {"of": after.values["of"]})  # of a version that did not say whether it had ended
    for snapshot, rows in ((before, wanted["before"]), (after, []), (old, [])):
        again, kept = opened(final)
        again.restore([snapshot])
        again.end_input()
        assert kept.rows == rows
