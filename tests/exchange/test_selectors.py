"""Which rows go where: nothing is lost or doubled, order is kept per channel, a key has one channel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.exchange.selectors import (
    Broadcast,
    ChannelSelector,
    Forward,
    KeyGroups,
    LoadAwareRebalance,
    Rebalance,
    Shuffle,
    split_by_channel,
)
from headgate.records.hashing import default_max_parallelism, key_groups, key_hash, subtask_of_key_group

SCHEMA = pa.schema({"i": pa.int64(), "s": pa.string(), "f": pa.float64(), "row": pa.int64()})
ROW = st.tuples(
    st.none() | st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.text(max_size=20),
    st.none() | st.sampled_from([0.0, -0.0, float("nan"), 1.5]),
)


def batch_of(values: list[tuple[object, ...]], skipped: int = 0) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True))
    arrays = [pa.array(list(column), SCHEMA.field(index).type) for index, column in enumerate(columns)]
    return pa.record_batch([*arrays, pa.array(range(len(values)))], schema=SCHEMA).slice(skipped)


def row_numbers(shares: list[tuple[int, pa.RecordBatch]]) -> list[tuple[int, list[int]]]:
    """The rows of each channel as it gets them; of few rows it may get several pieces."""
    numbers: dict[int, list[int]] = {}
    for channel, rows in shares:
        assert rows.num_rows, "no share is empty"
        numbers.setdefault(channel, []).extend(rows.column("row").to_pylist())
    return list(numbers.items())


BATCHES = st.lists(ROW, min_size=3, max_size=30)


def test_forward_has_one_channel() -> None:
    batch = batch_of([(1, "a", 0.0)] * 3)
    ((channel, rows),) = Forward().select(batch)
    assert channel == 0
    assert rows is batch


@pytest.mark.parametrize("start", [0, 1, 2, 7])
def test_rebalance_sends_whole_batches_to_the_channels_in_turn(start: int) -> None:
    selector = Rebalance(3, start)
    batches = [batch_of([(n, None, None)]) for n in range(7)]
    shares = [selector.select(batch) for batch in batches]
    assert [[channel for channel, _ in share] for share in shares] == [[(start + n) % 3] for n in range(7)]
    assert all(share[0][1] is batch for share, batch in zip(shares, batches, strict=True))


def test_load_aware_rebalance_is_plain_rebalance_without_load() -> None:
    batch = batch_of([(1, "a", 0.0)])
    selector = LoadAwareRebalance(3, start=1, load=lambda channel: 0)
    assert [selector.select(batch)[0][0] for _ in range(5)] == [1, 2, 0, 1, 2]


def test_load_aware_rebalance_passes_over_what_is_loaded() -> None:
    batch, load = batch_of([(1, "a", 0.0)]), [0, 9, 0]
    selector = LoadAwareRebalance(3, start=0, load=load.__getitem__)
    assert [selector.select(batch)[0][0] for _ in range(4)] == [0, 2, 0, 2]
    load[:] = [5, 3, 4]
    assert [selector.select(batch)[0][0] for _ in range(3)] == [1, 1, 1]


def test_load_aware_rebalance_looks_at_few_channels() -> None:
    """Whatever the number of channels: four looks for a batch."""
    seen: list[int] = []
    LoadAwareRebalance(100, start=98, load=lambda channel: seen.append(channel) or 0).select(batch_of([(1, "", 0.0)]))
    assert seen == [98, 99, 0, 1]


@settings(deadline=None)
@given(BATCHES, st.integers(0, 2), st.integers(1, 300), st.integers(0, 9))
def test_a_shuffle_sends_every_row_once(
    values: list[tuple[object, ...]], skipped: int, channels: int, seed: int
) -> None:
    batch = batch_of(values, skipped)
    numbers = row_numbers(Shuffle(channels, seed).select(batch))
    assert sorted(row for _, rows in numbers for row in rows) == list(range(skipped, len(values)))
    assert all(rows == sorted(rows) for _, rows in numbers), "order is kept"
    assert all(0 <= channel < channels for channel, _ in numbers)
    assert numbers == row_numbers(Shuffle(channels, seed).select(batch)), "the same seed makes the same choice"


def test_a_shuffle_is_even_and_not_the_same_for_every_batch() -> None:
    batch, selector = batch_of([(n, None, None) for n in range(4000)]), Shuffle(4, seed=0)
    first, second = row_numbers(selector.select(batch)), row_numbers(selector.select(batch))
    assert first != second
    assert all(900 < len(rows) < 1100 for _, rows in first + second)


@pytest.mark.parametrize("channels", [2, 4, 5, 300])
def test_the_rows_of_a_channel_keep_their_order(channels: int) -> None:
    numbers = [(row * 7919) % 65537 % channels for row in range(1000)]
    batch = batch_of([(0, None, None)] * len(numbers))
    shares = split_by_channel(batch, np.array(numbers, np.uint16), channels)
    wanted = [[row for row, number in enumerate(numbers) if number == channel] for channel in range(channels)]
    assert row_numbers(shares) == [(channel, rows) for channel, rows in enumerate(wanted) if rows]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint64(), pa.timestamp("us")])
def test_small_and_other_integers_go_where_their_hashes_say(kind: pa.DataType) -> None:
    selector = KeyGroups(["k"], 3, 128)
    largest = 127 if kind.bit_width == 8 else 65535
    least = 0 if kind == pa.uint64() else -1
    for values in (range(100), [0, largest] * 10, [5] * 20, [largest + least] * 20, [least] * 20, range(100)):
        keys = pa.array(values, pa.int64()).cast(kind)
        batch = pa.record_batch({"k": keys, "row": range(len(values))})
        channels = subtask_of_key_group(key_groups(key_hash([keys]), 128), 3, 128).tolist()
        found = row_numbers(selector.select(batch))
        assert sorted((row, channel) for channel, rows in found for row in rows) == list(enumerate(channels))


def test_integers_beyond_the_table_go_where_their_hashes_say() -> None:
    selector = KeyGroups(["k"], 3, 128)
    for values in ([1, 2] * 10, [65536] * 10, [1 << 62, -(1 << 63)] * 10, [1, 2] * 10):
        keys = pa.array(values, pa.int64())
        channels = subtask_of_key_group(key_groups(key_hash([keys]), 128), 3, 128).tolist()
        found = row_numbers(selector.select(pa.record_batch({"k": keys, "row": range(len(values))})))
        assert sorted((row, channel) for channel, rows in found for row in rows) == list(enumerate(channels))


def test_broadcast_gives_all_rows_to_all() -> None:
    batch = batch_of([(1, "a", 0.0)])
    shares = Broadcast(3).select(batch)
    assert [channel for channel, _ in shares] == [0, 1, 2]
    assert all(rows is batch for _, rows in shares)


@settings(deadline=None)
@given(
    BATCHES,
    st.integers(0, 2),
    st.lists(st.sampled_from(["i", "s", "f"]), min_size=1, max_size=3, unique=True),
    st.integers(1, 12),
)
def test_key_groups_are_a_partition_by_key(
    values: list[tuple[object, ...]], skipped: int, keys: list[str], channels: int
) -> None:
    batch = batch_of(values, skipped)
    shares = KeyGroups(keys, channels, 128).select(batch)
    numbers = row_numbers(shares)
    assert sorted(row for _, rows in numbers for row in rows) == list(range(skipped, len(values)))
    assert all(rows == sorted(rows) for _, rows in numbers), "order is kept"
    for channel, rows in shares:
        expected = key_groups(key_hash([rows.column(key) for key in keys]), 128)
        assert channels == 1 or (subtask_of_key_group(expected, channels, 128) == channel).all()


@settings(deadline=None)
@given(BATCHES, st.integers(2, 9))
def test_a_key_has_one_channel_whatever_stands_beside_it(values: list[tuple[object, ...]], channels: int) -> None:
    selector = KeyGroups(["i", "s"], channels, 128)
    together = {row: channel for channel, rows in row_numbers(selector.select(batch_of(values))) for row in rows}
    for row, value in enumerate(values):
        ((channel, _),) = selector.select(batch_of([value]))
        assert channel == together[row]


def test_nulls_are_a_key_of_their_own() -> None:
    batch = batch_of([(None, None, None)] * 4)
    for keys in (["i"], ["s"], ["f"], ["i", "s", "f"]):
        ((_, rows),) = KeyGroups(keys, 5, 128).select(batch)
        assert rows.num_rows == 4


@pytest.mark.parametrize("channels", [200, 300, 1000])
def test_many_more_channels_than_rows(channels: int) -> None:
    batch = batch_of([(n, str(n), None) for n in range(50)])
    numbers = row_numbers(KeyGroups(["i"], channels, default_max_parallelism(channels)).select(batch))
    assert sorted(row for _, rows in numbers for row in rows) == list(range(50))
    assert len(numbers) > 30
    assert all(0 <= channel < channels for channel, _ in numbers)
    assert max(channel for channel, _ in numbers) >= 100


def test_as_many_channels_as_groups_uses_them_all() -> None:
    batch = batch_of([(n, None, None) for n in range(5000)])
    assert {channel for channel, _ in KeyGroups(["i"], 128, 128).select(batch)} == set(range(128))


@pytest.mark.parametrize("selector", [KeyGroups(["i"], 1, 128), KeyGroups([], 4, 128)])
def test_with_one_channel_or_without_keys_the_batch_goes_whole(selector: ChannelSelector) -> None:
    batch = batch_of([(n, "a", 0.0) for n in range(9)])
    ((channel, rows),) = selector.select(batch)
    assert channel == 0
    assert rows is batch


def test_a_batch_of_one_key_is_not_copied() -> None:
    batch = batch_of([(7, "a", 0.0)] * 9)
    ((_, rows),) = KeyGroups(["i"], 4, 128).select(batch)
    assert rows is batch


def test_few_rows_are_cut_and_not_copied() -> None:
    """Copying takes a step for each column, however few the rows."""
    batch = batch_of([(n // 2, "a", 0.0) for n in range(8)])
    where = batch.column("row").buffers()[1].address
    shares = KeyGroups(["i"], 100, 128).select(batch)
    assert [rows.column("row").to_pylist() for _, rows in shares] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert all(rows.column("row").buffers()[1].address == where for _, rows in shares)


def test_dictionary_keys_go_where_their_values_go() -> None:
    words = pa.array(["a", None, "b", "a", "c"])
    plain = pa.record_batch({"s": words, "row": pa.array(range(5))})
    encoded = pa.record_batch({"s": words.dictionary_encode(), "row": pa.array(range(5))})
    selector = KeyGroups(["s"], 4, 128)
    assert row_numbers(selector.select(encoded)) == row_numbers(selector.select(plain))
