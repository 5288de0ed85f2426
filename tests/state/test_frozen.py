"""A frozen copy for a snapshot does not change when its original does."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from headgate.state.growable import Growable
from headgate.state.keys import KeyTable
from headgate.state.pairs import PairTable
from headgate.state.values import ValueLog

KINDS = {
    "small numbers": (pa.int64(), lambda chance: chance.randrange(3000)),
    "numbers": (pa.int64(), lambda chance: chance.choice([None, chance.randrange(1 << 40)])),
    "strings": (pa.string(), lambda chance: chance.choice([None, "", f"a longer string, number {chance.random()}"])),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_keys(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    data_type, value = KINDS[kind]
    table = KeyTable([data_type])
    kept: list[tuple[KeyTable, int, list[object]]] = []
    for _ in range(30):
        keys = pa.array([value(chance) for _ in range(chance.choice([1, 100, 2000]))], data_type)  # type: ignore[no-untyped-call]
        table.find_or_add([keys], len(keys))
        if chance.random() < 0.3:
            table.compact(np.flatnonzero(np.random.default_rng(seed).random(len(table)) < chance.random()))
        if chance.random() < 0.5:
            kept.append((table.frozen(), len(table), table.keys(np.arange(len(table)))[0].to_pylist()))
    assert kept
    for frozen, size, values in kept:
        assert frozen.keys(np.arange(size))[0].to_pylist() == values


def test_pairs_and_values() -> None:
    pairs, values = PairTable(), ValueLog(pa.string())
    pairs.find_or_add(0, np.arange(10))
    values.append(pa.array(["a", "b"]))
    frozen, log = pairs.frozen(), values.frozen()
    pairs.find_or_add(1, np.arange(100_000))
    values.append(pa.array(["c"] * 10))
    pairs.replace(np.zeros(1, np.int64), np.array([5]))
    values.keep(np.array([1]))
    assert frozen.right().tolist() == list(range(10))
    assert not frozen.left().any()
    assert log.take(np.arange(2)).to_pylist() == ["a", "b"]


def test_an_array_that_is_shared_is_replaced_by_another_one() -> None:
    array: Growable[np.int64] = Growable(np.int64)
    array.append(np.arange(10))
    shared, copied = array.shared(), array.frozen()
    array.append(np.arange(5))
    assert np.shares_memory(shared.values, array.values)
    assert not np.shares_memory(copied.values, array.values)
    array.replace(np.full(3, 7))
    array.append(np.full(20, 8))
    assert shared.values.tolist() == copied.values.tolist() == list(range(10))
    array.replace(np.full(3, 9))  # no copy shares the new one
    assert array.values.tolist() == [9, 9, 9]
