"""The summary of heavy keys: what it keeps, and which keys are hot."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.observe.finding import Cause, Finding, Remedy
from headgate.observe.heavy_keys import HeavyKeys, HotKey, hot, shown
from headgate.observe.verdict import verdict_of


def summary(batches: list[list[int]], kept: int) -> HeavyKeys:
    heavy = HeavyKeys(kept)
    for batch in batches:
        heavy.add(np.array(batch, np.uint64), np.ones(len(batch)))
    return heavy


@given(batches=st.lists(st.lists(st.integers(0, 20)), max_size=8), kept=st.integers(1, 30))
def test_a_share_is_too_small_by_at_most_a_part_of_the_rows(batches: list[list[int]], kept: int) -> None:
    heavy = summary(batches, kept)
    true = Counter(key for batch in batches for key in batch)
    assert heavy.total == true.total()
    assert len(heavy) <= kept
    found = dict(heavy.shares())
    assert found.keys() <= true.keys()
    for key, count in true.items():
        share, error = count / true.total(), 1 / (kept + 1)
        assert share - error - 1e-9 <= found.get(key, 0.0) <= share + 1e-9


def test_the_largest_share_comes_first_and_weights_count() -> None:
    heavy = HeavyKeys()
    heavy.add(np.array([7, 8], np.uint64), np.array([1.0, 2.0]))
    heavy.add(np.array([7], np.uint64), np.array([7.0]))
    assert heavy.shares() == [(7, 0.8), (8, 0.2)]


@pytest.mark.parametrize(
    ("shares", "named"),
    [
        ([0.9] + [0.001] * 100, [0.9]),
        ([0.45, 0.45] + [0.001] * 100, [0.45, 0.45]),
        ([0.11] + [0.0089] * 100, [0.11]),
        ([0.04] * 25, []),
        ([0.125] * 8, []),  # even, although each has more than a tenth
        ([0.5, 0.5], [0.5, 0.5]),
        ([1.0], [1.0]),
        ([0.25] * 4, []),
        ([0.16] * 5 + [0.002] * 100, [0.16] * 3),
        ([], []),
    ],
)
def test_a_hot_key_has_much_more_than_its_part(shares: list[float], named: list[float]) -> None:
    assert [share for _, share in hot(list(enumerate(shares)))] == named


def test_the_text_of_a_key_names_its_columns_and_is_short() -> None:
    values = {"origin": "JFK", "day": 3, "note": None, "raw": b"\x00", "long": "x" * 50, "big": 10**50}
    assert shown(values, 10) == (
        f"origin='JFK', day=3, note=null, raw=b'\\x00', long='{'x' * 10}'..., big=1{'0' * 9}..."
    )


FINDING = Finding(
    place="'sums[1]'",
    vertex=1,
    operator="sums",
    subtasks=(1,),
    waits=("numbers",),
    cause=Cause(name="data_skew", text="it gets 80% of the rows", evidence={"share_of_rows": 0.8}),
    remedy=Remedy(text="spread its hot keys"),
    hot_keys=(HotKey("origin='JFK'", 0.934, 1),),
)


def test_only_the_terminal_sees_keys() -> None:
    said = "'numbers' waits for 'sums[1]': it gets 80% of the rows, most for the key origin='JFK' (93%); spread"
    assert FINDING.sentence_with_keys.startswith(said)
    assert said in verdict_of([FINDING]).line
    assert "JFK" not in FINDING.sentence
    assert "JFK" not in str(FINDING.as_json())


def test_keys_of_several_subtasks_have_the_number_of_theirs() -> None:
    keys = (HotKey("k=1", 0.5, 0), HotKey("k=2", 0.4, 3))
    finding = Finding(
        **{name: getattr(FINDING, name) for name in FINDING.__slots__} | {"subtasks": (0, 3), "hot_keys": keys}
    )
    assert "most for the keys k=1 (50% of [0]), k=2 (40% of [3]);" in finding.sentence_with_keys
