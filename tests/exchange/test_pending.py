"""Pending slices: how they are cut into messages, and whose bytes count for how long."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.exchange.pending import HeldBatch, PendingBudget, PendingSlices
from tests.exchange.rig import ROW, rows


def pending_of(*batches: pa.RecordBatch) -> PendingSlices:
    pending = PendingSlices(range(1))
    for batch in batches:
        pending.add(batch, ROW, HeldBatch(batch.nbytes, 1, 0))
    return pending


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 400))
def test_messages_are_of_one_to_two_message_sizes_and_keep_every_row_in_order(
    counts: list[int], message_size: int
) -> None:
    batches, first = [], 0
    for count in counts:
        batches.append(rows(first, count))
        first += count
    messages, released = pending_of(*batches).cut(message_size)
    assert [value for message in messages for value in message.column(0).to_pylist()] == list(range(first))
    assert released == first * ROW
    sizes = [message.num_rows * ROW for message in messages]
    assert all(size < 2 * message_size or size == ROW for size in sizes)
    if first * ROW < message_size:
        assert len(sizes) == 1
    else:
        assert all(size > message_size - ROW for size in sizes), "at most a part of a row is missing"


def test_a_row_larger_than_a_message_goes_alone() -> None:
    messages, _ = pending_of(rows(0, 3)).cut(1)
    assert [message.num_rows for message in messages] == [1, 1, 1]


def test_rows_without_bytes_are_one_message() -> None:
    pending = PendingSlices(range(1))
    pending.add(pa.record_batch({"x": pa.nulls(5)}), 0.0, HeldBatch(0, 1, 0))
    messages, _ = pending.cut(100)
    assert [message.num_rows for message in messages] == [5]


def test_after_a_cut_nothing_is_left() -> None:
    pending = pending_of(rows(0, 3))
    assert (pending.rows, pending.bytes) == (3, 3 * ROW)
    pending.cut(100)
    assert (pending.rows, pending.bytes) == (0, 0.0)


def test_a_batch_counts_whole_until_the_last_of_its_slices_is_cut() -> None:
    held = HeldBatch(1000, 3, 0)
    channels = [PendingSlices(range(index, index + 1)) for index in range(3)]
    for channel in channels:
        channel.add(rows(0, 1), ROW, held)
    assert [channel.cut(100)[1] for channel in channels] == [0, 0, 1000]


def test_a_budget_adds_up_what_all_writers_hold() -> None:
    budget = PendingBudget(100)
    one, other = budget.add_count(), budget.add_count()
    one.bytes, other.bytes = 60, 40
    assert budget.used == 100
    assert not budget.is_exceeded
    other.bytes += 1
    assert budget.is_exceeded


def test_beyond_the_budget_holders_above_an_equal_share_exceed_it() -> None:
    budget = PendingBudget(100)
    one, other = budget.add_count(), budget.add_count()
    one.bytes, other.bytes = 51, 49
    assert not budget.is_exceeded_by(one), "altogether it is not too much"
    one.bytes, other.bytes = 1000, 50
    assert budget.is_exceeded_by(one)
    assert not budget.is_exceeded_by(other)
    other.bytes += 1
    assert budget.is_exceeded_by(other)


def test_the_oldest_batch_is_that_of_the_first_slice() -> None:
    pending = PendingSlices(range(1))
    for number in (7, 9):
        pending.add(rows(0, 3), ROW, HeldBatch(24, 1, number))
    assert pending.oldest == 7


@pytest.mark.parametrize("message_size", [80, 10_000])
def test_one_slice_is_not_copied(message_size: int) -> None:
    batch = rows(0, 20)
    messages, _ = pending_of(batch).cut(message_size)
    assert all(message.column(0).buffers()[1].address == batch.column(0).buffers()[1].address for message in messages)
