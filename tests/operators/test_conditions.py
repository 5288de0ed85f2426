"""Aggregates with a condition: wrong conditions are refused, state is kept, and rows that do not count leave no
trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.aggregates import Aggregate

SCHEMA = pa.schema([("price", pa.int64()), ("shop", pa.string())])
#: Nulls come after the rows of the condition.
ROWS = pa.record_batch([[5, 50, 500, None], ["a", "b", "", "a"]], schema=SCHEMA)


def result(aggregate: Aggregate, batch: pa.RecordBatch = ROWS) -> list[Any]:
    """Return the results of four slots, each of which has one row."""
    held = AccumulatorSet((("x", aggregate),), SCHEMA)
    held.update(len(batch), np.arange(len(batch)), batch, np.arange(len(batch)))
    [column] = held.results(np.arange(len(batch)))
    values: list[Any] = column.to_pylist()
    return values


@pytest.mark.parametrize(
    ("aggregate", "wanted"),
    [
        (hg.count(where="price > 10"), [0, 1, 1, 0]),
        (hg.count("shop", where="price > 10"), [0, 1, 1, 0]),
        (hg.sum("price", where="shop <> ''"), [5, 50, None, None]),
        (hg.mean("price", where="price < 100"), [5.0, 50.0, None, None]),
        (hg.max("price", where=pc.field("shop") == "b"), [None, 50, None, None]),
        (hg.min("shop", where="price > 10"), [None, "b", "", None]),
        (hg.last("price", where="shop = 'a'"), [5, None, None, None]),
        (hg.count_distinct("shop", where="price is null"), [0, 0, 0, 1]),
        (hg.collect_list("price", where="price >= 50"), [[], [50], [500], []]),
        (hg.sum("price", where="null"), [None] * 4),
        (hg.min("shop", where="price > 1000"), [None] * 4),
    ],
    ids=str,
)
def test_only_rows_of_the_condition_count(aggregate: Aggregate, wanted: list[Any]) -> None:
    assert result(aggregate) == wanted


def test_a_condition_is_evaluated_once_for_all_its_aggregates(monkeypatch: pytest.MonkeyPatch) -> None:
    from headgate.operators.sql.expressions import Expression

    asked: list[str] = []
    evaluate = Expression.evaluate
    monkeypatch.setattr(Expression, "evaluate", lambda self, batch: asked.append(self.text) or evaluate(self, batch))
    texts = ("price > 1", "price > 1", "price > 2", "price > 1")
    held = AccumulatorSet(tuple((f"x{n}", hg.count(where=text)) for n, text in enumerate(texts)), SCHEMA)
    held.update(1, np.zeros(4, np.int64), ROWS, None)
    assert asked == ["price > 1", "price > 2"]


def test_the_name_of_the_state_has_the_condition() -> None:
    assert str(hg.sum("price", where="price > 1")) == "sum('price', where='price > 1')"
    assert str(hg.count(where="price > 1")) == "count(where='price > 1')"


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("price", "where: 'price' is int64, not a condition"),
        ("cost > 1", "where: .*no column 'cost'"),
        (pc.field("cost") > 1, "where: .* does not fit the columns price, shop"),
        (True, "where=True must be a SQL string or a pyarrow Expression"),
        (lambda batch: batch, "where=.* must be a SQL string or a pyarrow Expression"),
    ],
)
def test_wrong_conditions(where: Any, error: str) -> None:
    stream = hg.StreamEnvironment().from_source(hg.sources.iterable([ROWS])).key_by("shop")
    with pytest.raises(hg.PlanError, match=f"^aggregate: total: {error}"):
        stream.aggregate(total=hg.sum("price", where=where))


def test_a_variance_of_far_values_keeps_its_digits() -> None:
    far = pa.array([1e9 + value for value in (4, 7, 13, 16)])
    schema = pa.schema([("x", pa.float64())])
    held = AccumulatorSet((("v", hg.var("x")), ("s", hg.stddev("x"))), schema)
    for begin in range(4):
        held.update(1, np.zeros(1, np.int64), pa.record_batch([far.slice(begin, 1)], schema=schema), None)
    assert [column.to_pylist() for column in held.results(np.zeros(1, np.int64))] == [[30.0], [30.0**0.5]]


def test_a_variance_of_strings_is_refused() -> None:
    with pytest.raises(hg.PlanError, match=r"x=var\('shop'\): column 'shop' is string, and var takes numbers"):
        hg.var("shop").output_field("x", SCHEMA)
