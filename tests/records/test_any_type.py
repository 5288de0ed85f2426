"""Columns of types and values that chance has put together: encoded and decoded, they are the same rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.records.arrow import BatchCodec, plain_schema
from tests.arrow_types import decimal32, decimal64, runs
from tests.examples import examples

ROWS = 6
#: A type, and the values that a column of it may have.
Kind = tuple[pa.DataType, st.SearchStrategy[Any]]

TEXT = st.text(max_size=20).filter(lambda text: text.isprintable())
LEAVES: list[Kind] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint32(), st.integers(0, (1 << 32) - 1)),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.uint64(), st.integers(0, (1 << 64) - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (decimal32(9, 2), st.integers(-(10**6), 10**6).map(Decimal)),
    (decimal64(18, 0), st.integers(-(10**17), 10**17).map(Decimal)),
    (pa.decimal128(38, 4), st.integers(-(10**30), 10**30).map(Decimal)),
    (pa.decimal256(76, 0), st.integers(-(10**70), 10**70).map(Decimal)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.duration("us"), st.timedeltas()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary(), st.binary(max_size=20)),
    (pa.binary_view(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.dictionary(pa.int8(), pa.string()), TEXT),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(-9, 9)),
]


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def _nested(kind: Kind) -> st.SearchStrategy[Kind]:
    data_type, values = kind
    some = st.lists(_nullable(values), max_size=3)
    # Below a null pyarrow's builders put a place in the dictionary that may not be there.
    without = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    return st.sampled_from(
        [
            (pa.list_(data_type), some),
            (pa.large_list(data_type), some),
            (pa.list_(without, 2), st.lists(_nullable(values), min_size=2, max_size=2)),
            (pa.struct({"a": without, "b": pa.int64()}), st.fixed_dictionaries({"a": _nullable(values)})),
            (pa.map_(pa.string(), data_type), st.lists(st.tuples(TEXT, _nullable(values)), max_size=3)),
        ]
    )


UUID: Kind = (pa.uuid() if hasattr(pa, "uuid") else pa.binary(16), st.binary(min_size=16, max_size=16))  # pyarrow 18
KIND = st.recursive(st.sampled_from(LEAVES), lambda inner: inner.flatmap(_nested), max_leaves=3) | st.just(UUID)


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    data_type, values = draw(KIND)
    column = pa.array(draw(st.lists(_nullable(values), min_size=ROWS, max_size=ROWS)), data_type)
    if draw(st.booleans()):  # each value once or several times in a row
        ends = sorted(draw(st.sets(st.integers(1, 40), min_size=ROWS, max_size=ROWS)))
        column = runs(ends, column)
    return column


@settings(max_examples=examples(200))
@given(st.lists(columns(), min_size=1, max_size=3), st.integers(0, ROWS), st.integers(0, ROWS))
def test_any_columns_are_the_same_rows_after_the_exchange(arrays: list[pa.Array], start: int, count: int) -> None:
    rows = min(map(len, arrays))
    names = [f"c{number}" for number in range(len(arrays))]
    batch = pa.record_batch([array.slice(0, rows) for array in arrays], names=names).slice(start, count)
    decoded = BatchCodec(batch.schema, paranoid=True).decode(*BatchCodec(batch.schema).encode(batch))
    assert decoded.schema == plain_schema(batch.schema)
    assert decoded.to_pylist() == batch.to_pylist()
