"""A batch of few rows takes another way through the key-group selector, to the same channels."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.exchange.selectors import KeyGroups
from headgate.records.canonical import fixed_words
from headgate.records.hashing import hash_of_word, hash_words, key_groups, key_hash

SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = {
    pa.int64(): SIGNED,
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 65_535),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.timestamp("us"): SIGNED,
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20),
}


@given(SIGNED)
def test_the_hash_of_a_word_is_that_of_a_column(value: int) -> None:
    assert hash_of_word(value) == hash_words(fixed_words(pa.array([value])))[0]


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(st.data())
def test_rows_go_to_the_channel_of_their_key_in_their_order(kind: pa.DataType, data: Any) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=10))
    keys = pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
    selector = KeyGroups(["key"], 3, data.draw(st.sampled_from([100, 128])))
    batch = pa.record_batch({"key": keys, "row": list(range(len(values)))})
    found = [(row, channel) for channel, rows in selector.select(batch) for row in rows["row"].to_pylist()]
    groups = key_groups(key_hash([keys]), selector.max_parallelism)
    assert sorted(found) == list(enumerate(selector._channel_of_group.take(groups).tolist()))
    for channel in range(3):
        assert [row for row, each in found if each == channel] == sorted(row for row, each in found if each == channel)
