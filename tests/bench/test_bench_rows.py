"""The generator of `keyed-sum`: pure, and as random as the measurement needs."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headgate.bench.rows import KEYS, SCHEMA, keyed_rows

WHOLE = keyed_rows(0, 2000)


@given(st.lists(st.integers(0, 2000), max_size=8))
def test_row_depends_on_its_number_alone(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 2000]
    parts = [keyed_rows(start, end - start) for start, end in pairwise(edges)]
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([WHOLE]))


def test_no_rows_still_have_a_schema() -> None:
    assert keyed_rows(0, 0).schema == SCHEMA


def test_keys_and_values_are_uniform_and_independent() -> None:
    rows = keyed_rows(10**12, 500_000)
    key, value = rows["key"].to_numpy(), rows["value"].to_numpy()
    counts = np.bincount(key, minlength=KEYS)
    assert len(counts) == KEYS and 380 < counts.min() and counts.max() < 620
    assert 0 <= value.min() and value.max() < 1 and abs(value.mean() - 0.5) < 0.002
    assert abs(np.corrcoef(key, value)[0, 1]) < 0.01
