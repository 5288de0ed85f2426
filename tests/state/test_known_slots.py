"""Finding keys without adding them agrees with a dict, for columns of all types."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.records.canonical import pack
from headgate.state.interner import Interner
from headgate.state.keys import KeyTable

INTS = st.sampled_from([None, 0, 1, -1, 7, 65_536, 2**63 - 1, -(2**63)])
TEXTS = st.sampled_from([None, "", "a", "ab", "a" * 8, "a" * 17, "a" * 17 + "b", "b" * 40, "é"])
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan, -math.nan, math.inf])
ROWS = st.lists(st.tuples(INTS, TEXTS, FLOATS), max_size=30)
TYPES = [pa.int64(), pa.string(), pa.float64()]


def columns(rows: list[tuple[object, ...]], kinds: list[pa.DataType]) -> list[pa.Array]:
    arrays = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(TYPES)]
    return [array.cast(kind) for array, kind in zip(arrays, kinds, strict=True)]


def canonical(row: tuple[object, ...]) -> tuple[object, ...]:
    number = row[2]
    if isinstance(number, float):
        number = "NaN" if math.isnan(number) else number + 0.0
    return (*row[:2], number)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(ROWS, ROWS, st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]))
def test_known_slots_agree_with_a_dict(
    added: list[tuple[object, ...]], asked: list[tuple[object, ...]], text_type: pa.DataType
) -> None:
    table = KeyTable(TYPES)
    slots = table.find_or_add(columns(added, TYPES), len(added))
    known = {canonical(row): slot for row, slot in zip(added, slots.tolist(), strict=True)}
    size = len(table)
    kinds = [pa.int64(), text_type, pa.float64()]
    assert table.known_slots(columns(asked, kinds), len(asked)).tolist() == [
        known.get(canonical(row), -1) for row in asked
    ]
    assert len(table) == size == len(known)


@pytest.mark.parametrize("count", [1, 100, 20_000])
def test_many_keys_in_and_out(count: int) -> None:
    table = KeyTable([pa.int64()])
    slots = table.find_or_add([pa.array(np.arange(count) * 3)], count)
    assert np.array_equal(table.known_slots([pa.array(np.arange(count) * 3)], count), slots)
    assert (table.known_slots([pa.array(np.arange(count) * 3 + 1)], count) == -1).all()
    assert len(table) == count


def test_without_columns_there_is_one_key() -> None:
    table = KeyTable([])
    assert table.known_slots([], 2).tolist() == [-1, -1]
    table.find_or_add([], 1)
    assert table.known_slots([], 2).tolist() == [0, 0]


def test_strings_with_equal_hashes_are_different_keys() -> None:
    interner = Interner(hashing=lambda packed: np.zeros(len(packed), np.uint64))
    words = ["a", "b", "c" * 20, "c" * 19 + "d", ""]
    ids = interner.find_or_add(pack(pa.array(words)))
    asked = pack(pa.array([*reversed(words), "q", "c" * 21]))
    assert interner.known_ids(asked).tolist() == [*ids[::-1].tolist(), -1, -1]
