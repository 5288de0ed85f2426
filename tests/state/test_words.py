"""The word table against a dict, with all kinds of collisions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.records.canonical import Int64s, UInt64s
from headgate.state.words import WordTable

WORDS = st.one_of(st.integers(0, 20), st.integers(65_530, 65_540), st.integers(-(2**63), 2**63 - 1))


class Colliding(WordTable):
    """Every key starts from the same place."""

    def _find_or_add(self, keys: Sequence[Int64s], hashes: UInt64s) -> Int64s:
        return super()._find_or_add(keys, np.zeros_like(hashes))

    def _hashes(self) -> UInt64s:
        return np.zeros(len(self), np.uint64)


@pytest.mark.parametrize("table_class", [WordTable, Colliding])
@given(batches=st.lists(st.lists(st.tuples(WORDS, WORDS), max_size=30), max_size=5), width=st.sampled_from([1, 2]))
def test_slots_agree_with_a_dict(
    table_class: type[WordTable], batches: list[list[tuple[int, int]]], width: int
) -> None:
    table, model = table_class(width), dict[tuple[int, ...], int]()
    for rows in batches:
        words = [np.array([row[i] for row in rows], np.int64) for i in range(width)]
        for row, slot in zip(rows, table.find_or_add(*words).tolist(), strict=True):
            assert model.setdefault(row[:width], slot) == slot
    assert sorted(model.values()) == list(range(len(table)))
    stored = zip(*(table.column(i).tolist() for i in range(width)), strict=True)
    assert {words: slot for slot, words in enumerate(stored)} == model


def test_growth_settles_the_rows_that_were_on_their_way() -> None:
    table = WordTable()
    words = np.arange(100_000) << 32
    slots = table.find_or_add(np.concatenate([words, words[::-1]]))
    assert (slots[:100_000] == slots[:99_999:-1]).all()
    assert (np.sort(slots[:100_000]) == np.arange(100_000)).all()
    assert (table.column().take(slots[:100_000]) == words).all()


def test_replace_leaves_only_the_new_keys() -> None:
    table = WordTable()
    table.find_or_add(np.array([5, 6, 7]))
    table.replace([np.array([7, 100_000])])
    assert table.find_or_add(np.array([100_000, 5, 7])).tolist() == [1, 2, 0]
    table.replace([np.array([1, 1]), np.array([1, 2])])
    assert table.find_or_add(np.array([1, 1, 1]), np.array([2, 3, 1])).tolist() == [1, 2, 0]


def test_slots_stay_through_direct_and_hashed_indexing() -> None:
    """Small numbers, then too many of too wide a range, then dense again, then one far out."""
    table, random = WordTable(), np.random.default_rng(5)
    model: dict[int, int] = {}
    sizes = []
    for reach, rows in ((1000, 5000), (1_000_000, 20_000), *[(1_000_000, 100_000)] * 6, (1 << 50, 10), (1000, 5000)):
        words = random.integers(0, reach, rows)
        slots = table.find_or_add(words)
        assert all(
            model.setdefault(word, slot) == slot for word, slot in zip(words.tolist(), slots.tolist(), strict=True)
        )
        asked = random.integers(-10, 1_000_100, 1000)
        assert table.known_slots(asked).tolist() == [model.get(word, -1) for word in asked.tolist()]
        sizes.append(table.nbytes / len(table))
    assert sorted(model.values()) == list(range(len(table)))
    assert max(sizes[2:]) < 48, "bytes per key"


def test_a_new_maximum_in_the_dense_range_keeps_what_was_there() -> None:
    table = WordTable()
    slots = table.find_or_add(np.arange(60_000))
    assert table.find_or_add(np.array([200_000, 3])).tolist() == [60_000, slots[3]]
    assert table.find_or_add(np.array([-1, 3, 59_999])).tolist() == [60_001, slots[3], slots[59_999]]
    assert (table.find_or_add(np.arange(60_000)) == slots).all()
