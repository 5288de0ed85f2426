"""`map_batches` with frames of pandas and polars: what the function gets, and how its frame becomes a batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.map_frames import operator_for
from tests.operators.window_rig import attach

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [2**53 + 1, None, -1]),
    "byte": (pa.uint8(), [0, 255, None]),
    "float": (pa.float64(), [1.5, None, float("inf")]),
    "short": (pa.float32(), [0.5, None, -1.0]),
    "flag": (pa.bool_(), [True, None, False]),
    "text": (pa.string(), ["a", None, "ü"]),
    "bytes": (pa.binary(), [b"", None, b"\0"]),
    "zoned": (pa.timestamp("us", "UTC"), [datetime(9999, 1, 1, tzinfo=UTC), None, datetime(1970, 1, 1, tzinfo=UTC)]),
    "at": (pa.timestamp("ms"), [datetime(2021, 1, 1), None, datetime(1, 1, 1)]),
    "day": (pa.date32(), [date(2021, 1, 1), None, date(1, 1, 1)]),
    "wait": (pa.duration("us"), [timedelta(seconds=1), None, timedelta(0)]),
    "price": (pa.decimal128(20, 2), [Decimal("1.25"), None, Decimal("-99999999999999999.99")]),
    "list": (pa.list_(pa.int64()), [[1, 2], None, []]),
    "point": (pa.struct([("x", pa.int64())]), [{"x": 1}, None, {"x": 2}]),
}
EVERYTHING = pa.record_batch(
    [pa.array(values, kind) for kind, values in COLUMNS.values()],
    schema=pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()]),
)
NUMBERS = pa.record_batch({"n": pa.array([1, 2], pa.int64()), "s": ["a", "b"]})


def mapped(frame: str, function: Callable[[Any], Any], batch: pa.RecordBatch, schema: pa.Schema | None = None) -> Any:
    operator = operator_for(frame)(function, schema or batch.schema, {"aside": batch.schema})
    kept, aside = attach(operator), attach(operator_for(frame)(function, batch.schema))
    operator.sides = {"aside": aside}
    operator.process(batch)
    return kept.batches, aside.batches


@pytest.mark.parametrize(("frame", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_every_type_comes_back_as_it_went(frame: str, kind: type) -> None:
    def same(df: Any) -> Any:
        assert isinstance(df, kind)
        return df

    for batch in (EVERYTHING, EVERYTHING.slice(0, 1), EVERYTHING.slice(1, 1)):
        assert mapped(frame, same, batch)[0] == [batch]


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_a_function_gives_several_frames_none_or_side_outputs(frame: str) -> None:
    assert mapped(frame, lambda df: [df, hg.SideOutput("aside", df), df[["s", "n"]]], NUMBERS) == (
        [NUMBERS] * 2,
        [NUMBERS],
    )
    assert mapped(frame, lambda df: None, NUMBERS) == ([], [])
    assert mapped(frame, lambda df: df[:0], NUMBERS) == ([], [])


def test_columns_are_cast_if_no_value_changes() -> None:
    narrow = pa.schema([("n", pa.int8()), ("s", pa.large_string())])
    (batch,), _ = mapped("pandas", lambda df: df[df.n > 1].assign(n=df.n / 2), NUMBERS, narrow)
    assert batch.to_pylist() == [{"n": 1, "s": "b"}]
    assert batch.schema == narrow


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda df: df.assign(n=0.5), r"returned double in column n, which schema= declares int64: .*0.5"),
        (lambda df: df.assign(n="1"), r"returned string in column n, which schema= declares int64"),
        (lambda df: df.assign(n=[1, "a"]), r"returned a frame that is no table of Arrow"),
        (lambda df: df.assign(m=1), r"returned the columns n, s, m, and schema= declares n, s"),
        (lambda df: df["n"], r"must return a DataFrame of pandas, a list of them or None, and returned"),
        (lambda df: df.missing, r"raised AttributeError: 'DataFrame' object has no attribute 'missing'"),
    ],
)
def test_an_error_names_the_column_and_the_type(change: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(hg.UserFunctionError, match=says):
        mapped("pandas", change, NUMBERS)


@pytest.mark.parametrize("frame", ["spark", pd, ""])
def test_an_unknown_library_is_an_error(frame: Any) -> None:
    stream = hg.StreamEnvironment().from_source(hg.sources.iterable([NUMBERS]))
    with pytest.raises(hg.PlanError, match='use frame="pandas" or "polars", or leave it out'):
        stream.map_batches(lambda df: df, schema=NUMBERS.schema, frame=frame)
