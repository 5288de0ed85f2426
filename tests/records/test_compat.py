"""What stands in for parts of newer versions of pyarrow gives the same answers as they do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headgate.compat import cast_values, concat_columns, filter_as_table, remainder

SCHEMA = pa.schema({"n": pa.int32(), "s": pa.string(), "l": pa.list_(pa.int8())})
ROWS = [{"n": 1, "s": "a", "l": [1]}, {"n": None, "s": None, "l": None}, {"n": 3, "s": "", "l": []}]


def test_batches_are_joined_in_their_order() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    whole = concat_columns([batch.slice(1, 1), batch, batch.slice(0, 0)])
    assert whole.to_pylist() == [ROWS[1], *ROWS]
    assert whole.schema == SCHEMA
    whole.validate(full=True)


@pytest.mark.parametrize("column", [pa.array(["a", None, "b" * 20]), pa.array([["a"], None, ["b", None]])], ids=str)
def test_views_are_cast(column: pa.Array) -> None:
    listed = pa.types.is_list(column.type)
    views = pa.array(column.to_pylist(), pa.list_(pa.string_view()) if listed else pa.string_view())
    assert cast_values(views, column.type).equals(column)
    assert cast_values(views.slice(1), column.type).equals(column.slice(1))


def test_a_cast_of_a_wrong_value_fails() -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast_values(pa.array(["a"]), pa.int64())


@pytest.mark.parametrize(("least", "kept"), [(0, [0, 2]), (2, [2]), (9, [])])
def test_rows_are_filtered(least: int, kept: list[int]) -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, SCHEMA)
    rows = filter_as_table(batch, pc.field("n") > least)
    assert isinstance(rows, pa.RecordBatch)
    assert rows.schema == SCHEMA
    assert rows.to_pylist() == [ROWS[at] for at in kept]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_the_remainder_has_the_sign_of_the_dividend(kind: pa.DataType) -> None:
    left, right = pa.array([7, -7, 7, None, 5], kind), pa.array([4, 4, -4, 4, None], kind)
    expected = [3, -3, 3, None, None]
    assert remainder(left, right).to_pylist() == expected
    assert remainder(left, right).type == kind
    assert remainder(left, pa.scalar(4, kind)).to_pylist()[:4] == [3, -3, 3, None]
    assert remainder(pa.scalar(7, kind), right).to_pylist() == [3, 3, 3, 3, None]
    assert remainder(pa.scalar(-7, kind), pa.scalar(4, kind)) == pa.scalar(-3, kind)
    assert remainder(pa.scalar(7, kind), pa.scalar(None, kind)) == pa.scalar(None, kind)
    assert remainder(left, pa.scalar(None, kind)).null_count == len(left)
    assert remainder(left.slice(0, 0), right.slice(0, 0)).to_pylist() == []


def test_the_remainder_of_the_lowest_integer() -> None:
    assert remainder(pa.array([-(2**63)]), pa.array([-1])).to_pylist() == [0]


def test_the_remainder_of_what_is_no_number() -> None:
    rest = remainder(pa.array([np.inf, 5.5]), pa.array([2.0, np.inf]))
    assert np.isnan(rest[0].as_py())
    assert rest[1].as_py() == 5.5
