"""The generator of `keyed-sum`: pure, and as random as the measurement needs."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.bench.keyed_rows import (
    KEYS,
    PAIR_SCHEMA,
    SCHEMA,
    STRING_SCHEMA,
    keyed_rows,
    pair_keyed_rows,
    string_keyed_rows,
)

MANY = 1_000_000
MAKERS: list[Callable[[int, int], pa.RecordBatch]] = [
    keyed_rows,
    partial(keyed_rows, keys=MANY),
    partial(string_keyed_rows, keys=MANY),
    pair_keyed_rows,
]
WHOLE = [make(0, 2000) for make in MAKERS]


@given(st.lists(st.integers(0, 2000), max_size=8))
def test_row_depends_on_its_number_alone(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 2000]
    for make, whole in zip(MAKERS, WHOLE, strict=True):
        parts = [make(start, end - start) for start, end in pairwise(edges)]
        assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]))


@pytest.mark.parametrize("keys", [1, 999, MANY])
def test_a_key_is_the_same_in_every_form(keys: int) -> None:
    numbers = keyed_rows(0, 3000, keys)["key"].to_pylist()
    assert string_keyed_rows(0, 3000, keys)["key"].to_pylist() == [f"key-{number:08x}" for number in numbers]
    pairs = pair_keyed_rows(0, 3000, keys)
    pairs.validate(full=True)
    parts = zip(pairs["area"].to_pylist(), pairs["key"].to_pylist(), strict=True)
    assert [int(key.removeprefix("key-"), 16) * 32 + area for area, key in parts] == numbers


def test_no_rows_still_have_a_schema() -> None:
    makers = {keyed_rows: SCHEMA, string_keyed_rows: STRING_SCHEMA, pair_keyed_rows: PAIR_SCHEMA}
    assert all(make(0, 0).schema == schema for make, schema in makers.items())


def test_all_requested_keys_occur_equally_often() -> None:
    counts = np.bincount(keyed_rows(0, 4 * MANY, MANY)["key"].to_numpy(), minlength=MANY)
    assert len(counts) == MANY
    assert counts.min() == 0
    assert counts.max() < 40
    assert abs(counts.var() - 4) < 0.1, "as many times each as chance gives: Poisson's"


def test_keys_and_values_are_uniform_and_independent() -> None:
    rows = keyed_rows(10**12, 500_000)
    key, value = rows["key"].to_numpy(), rows["value"].to_numpy()
    counts = np.bincount(key, minlength=KEYS)
    assert len(counts) == KEYS
    assert 380 < counts.min()
    assert counts.max() < 620
    assert 0 <= value.min()
    assert value.max() < 1
    assert abs(value.mean() - 0.5) < 0.002
    assert abs(np.corrcoef(key, value)[0, 1]) < 0.01
