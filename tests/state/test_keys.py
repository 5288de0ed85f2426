"""`KeyTable` gives each key its own slot, and returns the keys as they were, for keys of all types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import PlanError
from headgate.records.canonical import value_type
from headgate.state.keys import KeyTable
from tests.arrow_types import decimal32

NAN = float("nan")
TEXTS = st.one_of(st.none(), st.text(st.sampled_from("ab\0é"), max_size=40))
FLOATS = st.one_of(st.none(), st.sampled_from([0.0, -0.0, NAN, -NAN, 1.5, float("inf")]))
INTS = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))


def plain(value: Any) -> Any:
    """Return a value that equals another one in Python exactly if the keys are equal."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def grouped(slots: list[int]) -> list[int]:
    """Return the slots, renumbered by first occurrence: within a batch, new slots have any order."""
    order = list(dict.fromkeys(slots))
    return [order.index(slot) for slot in slots]


def slots_of(table: KeyTable, *columns: pa.Array) -> list[int]:
    return list(table.find_or_add(columns, len(columns[0])).tolist())


@settings(max_examples=60)
@given(st.lists(st.lists(st.tuples(TEXTS, FLOATS, INTS), max_size=30), max_size=5))
def test_slots_agree_with_a_dict(batches: list[list[tuple[Any, ...]]]) -> None:
    kinds = [pa.string(), pa.float64(), pa.int64()]
    table, model = KeyTable(kinds), dict[tuple[Any, ...], int]()
    for rows in batches:
        columns = [pa.array([row[i] for row in rows], kind, from_pandas=False) for i, kind in enumerate(kinds)]
        for row, slot in zip(rows, table.find_or_add(columns, len(rows)).tolist(), strict=True):
            assert model.setdefault(tuple(map(plain, row)), slot) == slot
    assert sorted(model.values()) == list(range(len(table)))
    back = [column.to_pylist() for column in table.keys(np.arange(len(table)))]
    assert {tuple(map(plain, key)): slot for slot, key in enumerate(zip(*back, strict=True))} == model


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXTS, INTS), min_size=1, max_size=60), st.data())
def test_compaction_keeps_the_live_keys_and_forgets_the_rest(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    kinds = [pa.string(), pa.int64()]
    table = KeyTable(kinds)
    table.find_or_add([pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)], len(rows))
    live = data.draw(st.lists(st.sampled_from(range(len(table))), unique=True))
    before = [column.to_pylist() for column in table.keys(np.array(live, np.int64))]
    table.compact(np.array(live, np.int64))
    assert len(table) == len(live)
    after = table.keys(np.arange(len(live)))
    assert [column.to_pylist() for column in after] == before
    assert table.find_or_add(after, len(live)).tolist() == list(range(len(live)))
    assert slots_of(table, pa.array(["new"]), pa.array([9])) == [len(live)]


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXTS, INTS), min_size=1, max_size=60), st.data())
def test_later_changes_do_not_change_a_frozen_table(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    """Another thread may compute the columns while the operator continues."""
    kinds = [pa.string(), pa.int64()]
    table = KeyTable(kinds)
    half = len(rows) // 2

    def add(some: list[tuple[Any, ...]]) -> None:
        table.find_or_add([pa.array([row[i] for row in some], kind) for i, kind in enumerate(kinds)], len(some))

    add(rows[:half])
    slots = np.arange(len(table))
    now, later = table.columns(slots, ["a", "b"], 128), table.frozen()
    add(rows[half:])
    table.compact(np.array(data.draw(st.lists(st.sampled_from(range(len(table))), unique=True)), np.int64))
    add([(text + "!" if text else "!", number) for text, number in rows])
    assert pa.table(later.columns(slots, ["a", "b"], 128)) == pa.table(now)


UTC_TIME = pa.timestamp("ms", "UTC")
COLUMNS = [
    pa.array([1, None, -1, 127], pa.int8()),
    pa.array([2**64 - 1, 0, None, 2**63], pa.uint64()),
    pa.array([0.5, None, float("inf"), 0.0], pa.float32()),
    pa.array([True, False, None], pa.bool_()),
    pa.array([date(2013, 1, 1), None, date(1900, 1, 1)], pa.date32()),
    pa.array([datetime(2013, 1, 1, tzinfo=UTC), None], UTC_TIME),
    pa.array([Decimal("1.5"), None, Decimal("-1.5")], pa.decimal128(10, 1)),
    pa.array([Decimal("1.5"), None, Decimal("-1.5")], decimal32(5, 1)),
    pa.array([Decimal(10) ** 60, None, -(Decimal(10) ** 60)], pa.decimal256(70)),
    pa.array(["", None, "a" * 100, "b"], pa.large_string()),
    pa.array(["", None, "a" * 100, "b"], pa.string_view()),
    pa.array([b"", None, b"\0"], pa.binary()),
    pa.array([b"1234", None], pa.binary(4)),
    pa.array(["x", None, "y"]).dictionary_encode(),
    pa.array([7, None, 9]).dictionary_encode(),
    pa.nulls(1),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_keys_are_returned_with_their_type(column: pa.Array) -> None:
    table = KeyTable([column.type])
    slots = slots_of(table, pa.concat_arrays([column, column]))
    assert sorted(slots) == sorted([*range(len(column))] * 2)
    (back,) = table.keys(np.array(slots[: len(column)]))
    back.validate(full=True)
    assert back.type == value_type(column.type)
    assert back.to_pylist() == column.to_pylist()


def test_nan_null_and_empty_are_keys_of_their_own() -> None:
    floats = pa.array([NAN, None, 0.0, -0.0, -NAN], from_pandas=False)
    assert grouped(slots_of(KeyTable([pa.float64()]), floats)) == [0, 1, 2, 2, 0]
    assert grouped(slots_of(KeyTable([pa.string()]), pa.array(["", None, "\0", "", None]))) == [0, 1, 2, 0, 1]


def test_a_late_null_does_not_change_the_slots_of_earlier_keys() -> None:
    table = KeyTable([pa.int64(), pa.int64()])
    slots = slots_of(table, pa.array([0, 1]), pa.array([0, 0]))
    slots += slots_of(table, pa.array([None, 0]), pa.array([0, None]))
    assert sorted(slots) == [0, 1, 2, 3]
    assert slots_of(table, pa.array([0, 1]), pa.array([0, 0])) == slots[:2]
    assert [column.to_pylist() for column in table.keys(np.array(slots))] == [[0, 1, None, 0], [0, 0, 0, None]]


def test_without_columns_there_is_one_key() -> None:
    table = KeyTable([])
    assert table.find_or_add([], 3).tolist() == [0, 0, 0]
    assert table.keys(np.array([0])) == []
    table.compact(np.array([0]))
    assert len(table) == 1


def test_equal_values_of_different_dictionaries_are_one_key() -> None:
    table = KeyTable([pa.dictionary(pa.int32(), pa.string())])
    small = pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int32()), ["a", "b"])
    large = pa.DictionaryArray.from_arrays(pa.array([9, 1], pa.int32()), [*"cbdefghij", "a"])
    null_inside = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["b", None]))
    b, a, null = slots_of(table, small)
    assert slots_of(table, large) == [a, b]
    assert slots_of(table, null_inside) == [b, null]


def test_unsuitable_types_and_too_many_columns_are_refused() -> None:
    with pytest.raises(PlanError, match="cannot be a key"):
        KeyTable([pa.list_(pa.int64())])
    with pytest.raises(PlanError, match="at most 63"):
        KeyTable([pa.int64()] * 64)


@pytest.mark.parametrize("spread", [1, 1 << 40], ids=["dense", "sparse"])
def test_many_keys_in_few_bytes(spread: int) -> None:
    table, keys = KeyTable([pa.int64()]), np.arange(300_000) * spread
    parts = [keys[begin : begin + 8192] for begin in range(0, len(keys), 8192)]
    slots = np.concatenate([table.find_or_add([pa.array(part)], len(part)) for part in parts])
    assert (np.sort(slots) == np.arange(len(keys))).all()
    again = np.random.default_rng(1).permutation(len(keys))
    assert (table.find_or_add([pa.array(keys[again])], len(keys)) == slots[again]).all()
    assert table.nbytes < 48 * len(keys)


def test_freed_keys_give_their_memory_back() -> None:
    table = KeyTable([pa.string()])
    sizes = []
    for era in range(8):
        texts = pa.array(
            [f"a key long enough for a tail, {number}" for number in range(era * 20_000, (era + 1) * 20_000)]
        )
        slots = table.find_or_add([texts], len(texts))
        sizes.append(table.nbytes)
        table.compact(slots[-10:])
    assert len(table) == 10
    assert max(sizes) < 1.5 * sizes[0]
