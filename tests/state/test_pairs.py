"""Pairs of slots against a dict, while the right numbers outgrow their bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headgate.state.pairs import PairTable

RIGHT = st.one_of(st.integers(0, 3), st.integers(0, 1 << 20), st.just((1 << 31) - 1))
BATCH = st.lists(st.tuples(st.one_of(st.integers(0, 3), st.just((1 << 31) - 1)), RIGHT), min_size=1, max_size=20)


@given(st.lists(BATCH, max_size=5), st.data())
def test_slots_agree_with_a_dict(batches: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    table, model = PairTable(), dict[tuple[int, int], int]()
    for pairs in batches:
        left, right = np.array(pairs).T
        for pair, slot in zip(pairs, table.find_or_add(left, right).tolist(), strict=True):
            assert model.setdefault(pair, slot) == slot
        if data.draw(st.booleans()):
            kept = data.draw(st.lists(st.sampled_from(sorted(model)), unique=True))
            table.replace(*np.array(kept, np.int64).reshape(-1, 2).T)
            model = {pair: slot for slot, pair in enumerate(kept)}
        stored = zip(table.left().tolist(), table.right().tolist(), strict=True)
        assert {pair: slot for slot, pair in enumerate(stored)} == model


def test_one_left_number_for_all() -> None:
    table = PairTable()
    slots = table.find_or_add(7, np.arange(1000))
    assert (table.find_or_add(np.full(1000, 7), np.arange(1000)) == slots).all()
    assert table.left(990).tolist() == [7] * 10
    assert (table.find_or_add(8, np.arange(1000)) >= 1000).all()
