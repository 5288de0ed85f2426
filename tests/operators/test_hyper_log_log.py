"""The estimate of distinct values is near the exact number, whatever the type, the order and the merges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.hyper_log_log import ApproximateDistinctAccumulator

SPECS = (("x", hg.approx_count_distinct("v")),)
ONE = np.zeros(1, np.int64)


def estimate(values: pa.Array, batch: int = 10_000) -> int:
    schema = pa.schema([("v", values.type)])
    held = AccumulatorSet(SPECS, schema)
    for begin in range(0, len(values), batch):
        part = values.slice(begin, batch)
        held.update(1, np.zeros(len(part), np.int64), pa.record_batch([part], schema=schema), None)
    [result] = held.results(ONE)
    found: int = result[0].as_py()
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1, 2, 10, 100, 1000, 5000, 12_000, 40_000, 300_000])
def test_the_error_is_within_three_standard_errors(count: int, seed: int) -> None:
    values = np.arange(count) + seed * 10**9
    assert abs(estimate(pa.array(values)) - count) <= max(0.05 * count, 1)


def test_values_that_come_again_count_once() -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 2000, 50_000)
    assert estimate(pa.array(values)) == estimate(pa.array(np.unique(values))) == estimate(pa.array(values), 777)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([None, None], pa.string()), 0),
        (pa.array(["", "a", None, "a"]), 2),
        (pa.array([0.0, -0.0, float("nan"), float("nan")]), 2),
        (pa.array(["x", "y", None, "x"]).dictionary_encode(), 2),
        (pa.array([True, False, None]), 2),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_values_are_told_apart_as_keys_are(values: pa.Array, wanted: int) -> None:
    assert estimate(values) == wanted


def test_merged_groups_have_the_estimate_of_all_values() -> None:
    schema = pa.schema([("v", pa.int64())])
    random = np.random.default_rng(2)
    values, slots = random.integers(0, 30_000, 60_000), random.integers(0, 7, 60_000)
    parts, whole = AccumulatorSet(SPECS, schema), AccumulatorSet(SPECS, schema)
    parts.update(7, slots, pa.record_batch([values], schema=schema), None)
    whole.absorb(2, np.array([0, 1, 0, 0, 1]), parts, np.array([0, 1, 2, 3, 5]))
    found = whole.results(np.arange(2))[0].to_pylist()
    for group, members in enumerate([(0, 2, 3), (1, 5)]):
        assert found[group] == estimate(pa.array(values[np.isin(slots, members)]))
    parts.keep(np.array([5, 0]))
    assert parts.results(np.arange(2))[0].to_pylist() == [
        estimate(pa.array(values[slots == 5])), estimate(pa.array(values[slots == 0])),
    ]  # fmt: skip


def test_the_state_of_a_group_is_bounded() -> None:
    held, sizes = ApproximateDistinctAccumulator(), []
    for begin in range(0, 2_000_000, 100_000):
        values = pa.array(range(begin, begin + 100_000))
        held.update(1, np.zeros(100_000, np.int64), values, None)
        sizes.append(held.nbytes)
    assert sizes[-1] == sizes[5] < 500_000


@pytest.mark.parametrize("word", [-1, 4096 << 6, 53])
def test_registers_that_cannot_be_are_refused(word: int) -> None:
    lists: Any = pa.array([[word]], pa.large_list(pa.int32()))
    with pytest.raises(ValueError, match="a register of approx_count_distinct is out of range"):
        ApproximateDistinctAccumulator().load(1, ONE, [lists])
