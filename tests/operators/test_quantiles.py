"""Quantiles are exact for few values and near for many, through merges and restores; mistakes have clear errors."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.aggregates.accumulator_set import AccumulatorSet
from headgate.operators.aggregates.quantile_sketches import QuantileAccumulator

SCHEMA = pa.schema([("v", pa.float64())])
SPECS = (("low", hg.quantile("v", 0.1)), ("median", hg.quantile("v", 0.5)), ("high", hg.quantile("v", 0.99)))


def held(values: Any, slots: Any, size: int, batch: int = 1000) -> AccumulatorSet:
    found = AccumulatorSet(SPECS, SCHEMA)
    for begin in range(0, len(values), batch):
        part = pa.record_batch([pa.array(values[begin : begin + batch])], schema=SCHEMA)
        found.update(size, slots[begin : begin + batch], part, None)
    return found


def results(found: AccumulatorSet, size: int) -> list[Any]:
    return list(zip(*(column.to_pylist() for column in found.results(np.arange(size))), strict=True))


def exact(values: Any) -> tuple[float, ...]:
    ordered = np.sort(values)
    return tuple(float(ordered[max(int(np.ceil(share * len(ordered))) - 1, 0)]) for share in (0.1, 0.5, 0.99))


def test_few_values_are_exact() -> None:
    random = np.random.default_rng(1)
    values, slots = random.normal(size=900), random.integers(0, 9, 900)
    found = held(values, slots, 9, batch=50)
    assert results(found, 9) == [exact(values[slots == slot]) for slot in range(9)]


def test_the_rank_of_many_values_is_near() -> None:
    values = np.random.default_rng(2).lognormal(size=200_000)
    [found] = results(held(values, np.zeros(len(values), np.int64), 1), 1)
    for share, result in zip((0.1, 0.5, 0.99), found, strict=True):
        assert abs((values <= result).mean() - share) < 0.02


def test_merged_and_restored_sketches_go_on() -> None:
    random = np.random.default_rng(3)
    values, slots = random.normal(size=300), random.integers(0, 6, 300)
    parts, whole = held(values, slots, 6), AccumulatorSet(SPECS, SCHEMA)
    whole.absorb(2, np.array([0, 1, 0, 1]), parts, np.array([0, 1, 2, 5]))
    wanted = [exact(values[np.isin(slots, group)]) for group in ((0, 2), (1, 5))]
    assert results(whole, 2) == wanted
    snapshot = parts.frozen()
    table = pa.table(snapshot.columns(np.array([4, 3])))
    parts.update(6, slots, pa.record_batch([np.full(300, 99.0)], schema=SCHEMA), None)
    assert pa.table(snapshot.columns(np.array([4, 3]))) == table, "later rows do not change a snapshot"
    restored = AccumulatorSet(SPECS, SCHEMA)
    [batch] = table.to_batches()
    restored.load(2, np.array([1, 0]), batch.columns)
    assert results(restored, 2) == [exact(values[slots == 3]), exact(values[slots == 4])]
    restored.keep(np.array([1]))
    assert results(restored, 1) == [exact(values[slots == 4])]


def test_nulls_and_nan_are_ignored() -> None:
    values = pa.array([None, float("nan"), 1.0, None, 3.0, float("nan")])
    found = AccumulatorSet(SPECS, SCHEMA)
    found.update(3, np.array([0, 1, 2, 2, 2, 2]), pa.record_batch([values], schema=SCHEMA), None)
    assert results(found, 3) == [(None,) * 3, (None,) * 3, (1.0, 1.0, 3.0)]
    assert found.nbytes > 0


@pytest.mark.parametrize("kind", [pa.int32(), pa.float32(), pa.decimal128(10, 2)], ids=str)
def test_numbers_of_other_types(kind: pa.DataType) -> None:
    schema = pa.schema([("v", kind)])
    found = AccumulatorSet(SPECS, schema)
    found.update(1, np.zeros(3, np.int64), pa.record_batch([pa.array([3, 1, 2], kind)], schema=schema), None)
    assert results(found, 1) == [(1.0, 2.0, 3.0)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_whole_jobs(parallelism: int) -> None:
    from tests.pipelines.pipeline_rig import assert_same, expected, stream_of

    env = hg.StreamEnvironment(parallelism=parallelism)
    windows = stream_of(env).key_by("name").window(hg.session("40 ms"))
    found = windows.aggregate(median=hg.quantile("number", 0.5), some=hg.quantile("number", 0.9, where="number > 0"))
    wanted = expected("""
        with marked as (
            select *, epoch_us(ts) - lag(epoch_us(ts)) over (partition by name order by ts) < 40000 as follows
            from events
        ), numbered as (
            select *, sum((follows is not true)::int) over (partition by name order by ts rows unbounded preceding) as s
            from marked
        )
        select name, min(ts) as window_start, max(ts) + interval 40 milliseconds as window_end,
            quantile_disc(number, 0.5)::double as median,
            quantile_disc(number, 0.9) filter (where number > 0)::double as some
        from numbered group by name, s
    """)
    assert_same(found.collect(), wanted)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half", True])
def test_impossible_shares(share: Any) -> None:
    with pytest.raises(hg.PlanError, match=r"quantile: .* must be a number from 0 to 1"):
        hg.quantile("v", share)


def test_a_quantile_of_strings_is_refused() -> None:
    with pytest.raises(hg.PlanError, match="column 'v' is string, and quantile takes numbers"):
        hg.quantile("v", 0.5).output_field("x", pa.schema([("v", pa.string())]))


def test_without_the_library_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refusing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "datasketches":
            raise ImportError
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with pytest.raises(hg.PlanError, match=r"pip install 'headgate\[sketches\]'"):
        hg.quantile("v", 0.5).output_field("x", SCHEMA)


def test_a_damaged_sketch_is_refused() -> None:
    with pytest.raises(ValueError, match="a sketch of a quantile cannot be read"):
        QuantileAccumulator(0.5).load(1, np.zeros(1, np.int64), [pa.array([b"nothing"], pa.large_binary())])
