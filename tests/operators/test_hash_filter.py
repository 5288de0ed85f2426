"""The filter that tells a join which of a run's rows cannot be partners."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.operators.joins.sorted_runs import FilterWhenItPays, HashFilter
from headgate.records.canonical import UInt64s

CODES = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=200)


def array(codes: list[int]) -> UInt64s:
    return np.array(sorted(codes), np.uint64)


@given(CODES, CODES)
def test_no_code_of_the_run_is_left_out(codes: list[int], others: list[int]) -> None:
    """A code that differs only in its second half, the time, has the hash of the run's code too."""
    same_hashes = [code ^ (other & 0xFFFFFFFF) for code, other in zip(codes, others, strict=False)]
    asked = array(codes + same_hashes + others)
    found = set(asked.take(HashFilter.of(array(codes)).may_have(asked)).tolist())
    assert found >= {*codes, *same_hashes}


def test_most_codes_of_other_hashes_are_left_out() -> None:
    random = np.random.default_rng(1)
    run, asked = random.integers(0, 1 << 64, (2, 10_000), np.uint64)
    assert len(HashFilter.of(np.sort(run)).may_have(np.sort(asked))) < 2_500


def test_the_filter_is_made_when_an_eighth_of_the_rows_was_searched_for() -> None:
    codes = array(list(range(800)))
    of_run = FilterWhenItPays()
    assert of_run.for_search(codes, 60) is None
    made = of_run.for_search(codes, 60)
    assert made is not None
    assert made is of_run.for_search(codes, 1)
    assert len(made.seen) == HashFilter.nbytes_of(800)
