"""The hash of keys: fixed for ever by literal numbers, the same for every layout, and spread evenly."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import PlanError
from headgate.records.canonical import null_mask, pack, unpack
from headgate.records.hashing import (
    default_max_parallelism,
    key_group_range,
    key_groups,
    key_hash,
    subtask_of_key_group,
)
from tests.arrow_types import array_of

MASK = (1 << 64) - 1
NULL = 7959387129361299745
ZERO = 16294208416658607535  # the first output of splitmix64 for seed 0
TEXTS = ["", "a", "a\0", "headgate", "headgate!", "sixteen bytes ok", "seventeen bytes!!", "x" * 100, "é", None]

VECTORS = [
    (
        [pa.array([0, 1, -1, 2**63 - 1, -(2**63), None])],
        [ZERO, 10451216379200822465, 16490336266968443936, 3055647633038352039, 5196802822362493915, NULL],
    ),
    (
        [pa.array([0.0, -0.0, 1.5, float("nan"), float("inf"), None])],
        [ZERO, ZERO, 15481881892811333770, 14351126860892846918, 2638638862653029785, NULL],
    ),
    (
        [pa.array(TEXTS)],
        [
            *(ZERO, 18332129328140668117, 14560478384924503615, 13481498239253278179, 16594104282170353026),
            *(14280493962805297667, 3513417316984381948, 13646133275319932022, 17862338273123003768, NULL),
        ],
    ),
    ([pa.array([False, True, None])], [ZERO, 10451216379200822465, NULL]),
    ([pa.array([0, 1_356_998_400_000_000], pa.timestamp("us"))], [ZERO, 10188094272120179951]),
    ([pa.array([0, 15706], pa.date32())], [ZERO, 14039047385901935333]),
    (
        [pa.array([Decimal("1.50"), Decimal("-1.50")], pa.decimal128(20, 2))],
        [6767787007679486268, 18066436490494869261],
    ),
    (
        [pa.array([1, 2, None]), pa.array(["AA", None, "AA"])],
        [5518528212198608637, 8019242022798499254, 4447551819366190176],
    ),
    ([], [ZERO]),
]


@pytest.mark.parametrize(("columns", "expected"), VECTORS, ids=lambda value: str(len(value)))
def test_hashes_never_change(columns: list[pa.Array], expected: list[int]) -> None:
    hashes = key_hash(columns)
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == expected


def _mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def _bytes_hash(value: bytes) -> int:
    """The hash of byte strings once more, one string at a time."""
    total = 0
    for number in range(0, len(value), 8):
        word = int.from_bytes(value[number : number + 8], "little") * 0x9E3779B97F4A7C15 * (number // 4 + 1) & MASK
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
        total = (total + (word ^ word >> 27)) & MASK
    return _mix((total * 0xD6E8FEB86659FD93 + len(value)) & MASK)


@given(st.lists(st.binary(max_size=60)))
def test_strings_of_all_lengths_hash_as_one_at_a_time(values: list[bytes]) -> None:
    assert key_hash([pa.array(values, pa.binary())]).tolist() == [_bytes_hash(value) for value in values]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_hash_as_one_at_a_time(values: list[int]) -> None:
    assert key_hash([pa.array(values, pa.int64())]).tolist() == [_mix(value & MASK) for value in values]


LAYOUTS = [
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int64(), pa.large_string())),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_one_hash_for_all_layouts_of_strings(layout: pa.DataType) -> None:
    expected = key_hash([pa.array(TEXTS)]).tolist()
    column = array_of(TEXTS, layout)
    assert key_hash([column]).tolist() == expected
    assert key_hash([column.slice(3)]).tolist() == expected[3:]
    assert key_hash([column.slice(2, 5)]).tolist() == expected[2:7]
    assert key_hash([column.slice(4, 0)]).tolist() == []


def test_a_dictionary_larger_than_the_rows_and_one_that_holds_a_null() -> None:
    dictionary = pa.array(["a", None, "headgate", *"bcdefg"])
    column = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0], pa.int32()), dictionary)
    assert key_hash([column]).tolist() == key_hash([pa.array(["headgate", None, None, "a"])]).tolist()
    nulls = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    assert key_hash([nulls]).tolist() == [NULL, NULL]
    long = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0] * 4, pa.int32()), dictionary)
    assert key_hash([long]).tolist() == key_hash([column]).tolist() * 4


@pytest.mark.parametrize(
    "narrow", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.duration("s")], ids=str
)
def test_integers_of_all_widths_hash_alike(narrow: pa.DataType) -> None:
    column = pa.array([0, 1, 100, None, 7]).cast(narrow)
    assert key_hash([column]).tolist() == key_hash([pa.array([0, 1, 100, None, 7])]).tolist()
    assert key_hash([column.slice(1, 3)]).tolist() == key_hash([pa.array([1, 100, None])]).tolist()


def test_floats_of_all_widths_hash_alike_and_all_nans_are_one() -> None:
    doubles = np.array([0.5, np.nan, -np.nan, 1.0, -0.0])
    doubles[2:3].view(np.uint64)[:] |= np.uint64(0xBEEF)  # a NaN with a payload
    expected = key_hash([pa.array([0.5, float("nan"), float("nan"), 1.0, 0.0], from_pandas=False)]).tolist()
    assert key_hash([pa.array(doubles, from_pandas=False)]).tolist() == expected
    for narrow in (np.float32, np.float16):
        assert key_hash([pa.array(doubles.astype(narrow), from_pandas=False)]).tolist() == expected


def test_other_types_that_can_be_keys() -> None:
    wide = pa.array([Decimal(1), Decimal(-1), Decimal(10) ** 50, None], pa.decimal256(60))
    fixed = pa.array([b"1234", b"abcd", b"abcd", None], pa.binary(4))
    assert len(set(key_hash([wide]).tolist())) == 4
    assert key_hash([fixed]).tolist() == key_hash([fixed.cast(pa.binary())]).tolist()
    assert key_hash([wide.slice(1, 2)]).tolist() == key_hash([wide]).tolist()[1:3]
    assert key_hash([pa.nulls(2)]).tolist() == [NULL, NULL]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.month_day_nano_interval()], ids=str
)
def test_nested_types_cannot_be_keys(kind: pa.DataType) -> None:
    with pytest.raises(PlanError, match=r"cannot be a key: only numbers, times, booleans, strings and binaries can"):
        key_hash([pa.nulls(3, kind)])


def test_the_order_of_columns_matters() -> None:
    one, two = pa.array([1, 2, None]), pa.array([2, 1, 1])
    assert (key_hash([one, two]) != key_hash([two, one])).all()


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40))), st.integers(0, 5))
def test_packed_strings_come_back(values: list[bytes | None], start: int) -> None:
    column = pa.array(values, pa.binary()).slice(start)
    assert unpack(pack(column), null_mask(column), column.type).equals(column)


@pytest.mark.parametrize("kind", ["dense", "strided", "strings"])
def test_key_groups_are_even(kind: str) -> None:
    numbers = np.arange(100_000) * (1 if kind == "dense" else 1 << 20)
    column = pa.array(numbers) if kind != "strings" else pa.array([f"key-{number}" for number in numbers.tolist()])
    counts = np.bincount(key_groups(key_hash([column]), 128), minlength=128)
    # A mean of 781 with a deviation of 28; six of them are out of reach for an even spread.
    assert counts.min() > 610
    assert counts.max() < 950


@pytest.mark.parametrize(
    ("parallelism", "max_parallelism"), [(1, 1), (1, 128), (2, 128), (3, 128), (7, 10), (128, 128)]
)
def test_every_key_group_has_one_subtask_whose_range_holds_it(parallelism: int, max_parallelism: int) -> None:
    groups = np.arange(max_parallelism)
    owners = subtask_of_key_group(groups, parallelism, max_parallelism)
    for subtask in range(parallelism):
        assert list(key_group_range(subtask, parallelism, max_parallelism)) == groups[owners == subtask].tolist()


@pytest.mark.parametrize(
    ("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (1000, 2048), (21845, 32768), (32768, 32768)]
)
def test_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected
