"""RecordWriter: messages by size, time and event; watermarks; what is due; the budget. Emit never waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.errors import ExchangeError
from headgate.exchange.flush import PROMPT_INTERVAL
from headgate.exchange.selectors import Broadcast, ChannelSelector, Forward, KeyGroups, Rebalance, Shuffle
from headgate.records.arrow import BatchCodec
from headgate.records.elements import LatencyMarker, WatermarkElement, WatermarkStatus
from headgate.records.events import Alignment, CheckpointBarrier, EndOfData
from headgate.records.spanning import SpanningDeserializer
from tests.examples import examples
from tests.exchange.rig import NEVER, ROW, SCHEMA, Rig, rows

MESSAGE = 10  # rows of 8 bytes in a message of 80
END = (EndOfData(),)
MakeRig = Callable[..., Rig]


def numbers(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


@pytest.fixture
def make() -> Iterator[MakeRig]:
    rigs: list[Rig] = []

    def make_rig(*arguments: Any, **options: Any) -> Rig:
        rigs.append(Rig(*arguments, **options))
        return rigs[-1]

    yield make_rig
    for rig in rigs:
        rig.close()


# ---- by size


def test_slices_wait_until_they_are_a_message(make: MakeRig) -> None:
    rig = make(Forward(), segment=512)
    rig.writer.emit(rows(0, 4))
    rig.writer.emit(rows(4, 5))
    assert rig.partition.bytes_out == 0
    assert rig.writer.pending_bytes == 9 * ROW
    assert rig.writer.is_available
    rig.writer.emit(rows(9, 1))
    assert rig.partition.bytes_out > 0
    assert rig.writer.pending_bytes == 0
    rig.writer.flush()
    assert rig.read() == (numbers(0, 10),)


class EverySecond:
    """Leaves out every second row."""

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if batch.num_rows == 1 else batch.take(pa.array(range(0, batch.num_rows, 2)))


@pytest.mark.parametrize("selector", [Forward(), KeyGroups(("n",), 2, 128)])
def test_a_combiner_leaves_out_rows_before_they_count(make: MakeRig, selector: ChannelSelector) -> None:
    rig = make(selector, channels=1 if isinstance(selector, Forward) else 2, combiner=EverySecond())
    for first, count in ((0, 8), (8, 1), (9, 6)):
        rig.writer.emit(rows(first, count))
        rig.writer.validate()
    rig.writer.flush()
    rig.writer.validate()
    sent = [row for channel in range(len(rig.partition.subpartitions)) for got in rig.read(channel) for row in got]
    assert rig.writer.rows_out == len(sent)
    if isinstance(selector, Forward):
        assert sent == [0, 2, 4, 6, 8, 9, 11, 13]
    else:
        assert sorted(sent) == [*range(0, 15, 2)]  # small batches are combined together, before they are split


@pytest.mark.parametrize("selector", [Forward(), KeyGroups(("n",), 2, 128), Broadcast(2)])
def test_no_rows_are_nothing(make: MakeRig, selector: Forward | KeyGroups | Broadcast) -> None:
    rig = make(selector, channels=1 if isinstance(selector, Forward) else 2)
    rig.writer.emit(rows(0, 0))
    rig.writer.flush()
    assert rig.writer.pending_bytes == rig.partition.bytes_out == rig.writer.rows_out == 0


def test_a_large_batch_is_cut_into_even_messages(make: MakeRig) -> None:
    rig = make(Forward())
    rig.writer.emit(rows(0, 35))
    rig.writer.flush()
    assert [len(message) for message in rig.read()] == [11, 12, 12]


def test_a_message_has_a_row_at_least(make: MakeRig) -> None:
    rig = make(Forward(), message_size=1)
    rig.writer.emit(rows(0, 3))
    rig.writer.flush()
    assert rig.read() == ((0,), (1,), (2,))


def test_a_message_of_several_segments_is_read_as_one(make: MakeRig) -> None:
    rig = make(Forward(), segment=16, message_size=800)
    rig.writer.emit(rows(0, 100))
    rig.writer.flush()
    assert rig.partition.subpartition(0).backlog > 50
    assert rig.read() == (numbers(0, 100),)


def test_each_channel_gathers_for_itself(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2)
    rig.writer.emit(rows(0, 9))
    rig.writer.emit(rows(100, 10))
    rig.writer.emit(rows(9, 1))
    rig.partition.flush(0)
    rig.partition.flush(1)
    assert rig.read_all() == [(numbers(0, 10),), (numbers(100, 10),)]
    assert rig.writer.rows_out == 20


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=12),
    st.integers(1, 3),
    st.sampled_from([0.0, NEVER]),
)
def test_no_row_is_lost_doubled_or_overtaken(emits: list[tuple[int, bool]], channels: int, timeout: float) -> None:
    rig = Rig(Rebalance(channels, start=0), channels, segment=64, segments=400, buffer_timeout=timeout)
    wanted: list[list[int]] = [[] for _ in range(channels)]
    first = 0
    for turn, (count, flush) in enumerate(emits):
        rig.writer.emit(rows(first, count))
        wanted[turn % channels] += range(first, first + count)
        first += count
        if flush:
            rig.writer.flush()
    rig.writer.finish()
    for seen, values in zip(rig.read_all(), wanted, strict=True):
        assert seen[-1:] == END
        assert [value for message in seen[:-1] for value in message] == values
    rig.close()


def test_another_schema_is_an_error_at_the_writer(make: MakeRig) -> None:
    rig = make(Forward())
    rig.writer.emit(pa.record_batch({"n": pa.array([1], pa.int32())}))
    with pytest.raises(ExchangeError, match="column n: expected int64, got int32"):
        rig.writer.flush()


# ---- by time


def test_the_buffer_timeout_counts_from_the_first_slice(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.1)
    assert rig.writer.deadline is None
    rig.writer.emit(rows(0, 1))
    rig.now += 0.06
    rig.writer.emit(rows(1, 1))
    assert rig.writer.deadline == pytest.approx(100.1)
    rig.writer.on_time(100.09)
    assert rig.read() == ()
    rig.writer.on_time(100.1)
    assert rig.read() == (numbers(0, 2),)
    assert rig.writer.deadline is None
    rig.now = 200.0
    rig.writer.emit(rows(2, 1))
    assert rig.writer.deadline == pytest.approx(200.1)


def test_the_timeout_also_shows_what_is_left_in_an_open_segment(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.1)
    rig.writer.emit(rows(0, MESSAGE))
    assert rig.writer.pending_bytes == 0
    assert rig.read() == (), "in a segment, but not to be seen"
    assert rig.notified == [0]
    rig.now += 0.1
    rig.writer.on_time(rig.now)
    assert rig.notified == [1]
    assert rig.read() == (numbers(0, MESSAGE),)


def test_timeout_0_sends_every_batch_at_once(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.0)
    for first in range(3):
        rig.writer.emit(rows(first, 1))
        assert rig.writer.deadline is None
        assert rig.read() == ((first,),)


def test_timeout_0_joins_batches_that_follow_without_a_pause(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.0)
    rig.tick = 0.0001  # the clock moves on by so much each time that it is read
    rig.writer.emit(rows(0, 1))
    assert rig.read() == ((0,),)
    rig.writer.emit(rows(1, 1))
    rig.writer.emit(rows(2, 1))
    assert rig.read() == ()
    deadline = rig.writer.deadline
    assert deadline is not None
    assert deadline <= rig.now + PROMPT_INTERVAL
    rig.writer.on_time(deadline)
    assert rig.read() == ((1, 2),)
    assert rig.writer.deadline is None


def test_timeout_0_leaves_nothing_behind_when_the_task_waits(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.0)
    rig.tick = 0.0001
    rig.writer.emit(rows(0, 1))
    rig.writer.emit(rows(1, 1))
    rig.writer.emit_watermark(7)
    rig.writer.before_wait()
    assert rig.read() == ((0,), (1,), WatermarkElement(7))


def test_a_task_rests_from_a_wait_to_the_end_of_its_next_batch(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout="adaptive")
    [subpartition] = rig.partition.subpartitions
    notified = []
    for waits in (False, True, False):
        if waits:
            rig.writer.before_wait()
        rig.writer.emit(rows(0, MESSAGE))
        notified.append(subpartition.writer_rests)
        rig.read()
    assert notified == [False, True, False]


def test_a_task_that_waits_for_segments_does_not_rest(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout="adaptive", segments=2)
    while rig.writer.is_available:
        rig.writer.emit(rows(0, MESSAGE))
    rig.writer.before_wait()
    assert not rig.partition.writer_rests


def test_without_adaptive_flush_no_task_rests(make: MakeRig) -> None:
    """Flushes and channels that the network thread sends together would each need a buffer and a write."""
    rig = make(Forward(), buffer_timeout=0.0)
    rig.writer.before_wait()
    assert not rig.partition.writer_rests


def test_timeout_0_sends_each_batch_alone_under_a_throttle(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.0, throttle=hg.throttle.FixedRate(1000))
    rig.tick = 0.0001
    for first in range(3):
        rig.writer.emit(rows(first, 1))
        assert rig.read() == ((first,),)


def test_timeout_minus_1_sends_only_what_is_full(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=NEVER)
    rig.writer.emit(rows(0, 9))
    assert rig.writer.deadline is None
    rig.writer.on_time(1e9)
    assert rig.partition.bytes_out == 0


def test_a_flush_wastes_nothing_of_the_open_segment(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.0, segment=4096)
    builders = set()
    for first in range(5):
        rig.writer.emit(rows(first, 1))
        rig.read()
        builders.add(rig.partition._builders[0])
    assert len(builders) == 1
    assert None not in builders


# ---- watermarks and statuses


def test_a_watermark_with_nothing_before_it_goes_at_once(make: MakeRig) -> None:
    rig = make(Forward(), 1)
    rig.writer.emit_watermark(5)
    assert rig.notified == [1]
    assert rig.read() == (WatermarkElement(5),)


def test_alone_it_goes_at_most_once_each_interval_and_the_newest_wins(make: MakeRig) -> None:
    rig = make(Forward(), watermark_interval=0.2)
    rig.writer.emit_watermark(1)
    rig.now = 100.05
    rig.writer.emit_watermark(2)
    rig.now = 100.1
    rig.writer.emit_watermark(3)
    assert rig.read() == (WatermarkElement(1),)
    assert rig.writer.deadline == pytest.approx(100.2)
    rig.writer.on_time(100.19)
    assert rig.read() == ()
    rig.now = 100.2
    rig.writer.on_time(rig.now)
    assert rig.read() == (WatermarkElement(3),)
    assert rig.writer.deadline is None
    rig.now = 100.4
    rig.writer.emit_watermark(4)
    assert rig.read() == (WatermarkElement(4),)


def test_behind_pending_rows_it_waits_and_never_forces_a_cut(make: MakeRig) -> None:
    rig = make(Forward())
    rig.writer.emit(rows(0, 4))
    rig.writer.emit_watermark(1)
    rig.writer.emit_watermark(2)
    assert rig.writer.deadline is None
    assert rig.partition.bytes_out == 0
    rig.now += 1000
    rig.writer.on_time(rig.now)
    assert rig.partition.bytes_out == 0
    rig.writer.emit(rows(4, 6))
    rig.writer.flush()
    assert rig.read() == (numbers(0, 10), WatermarkElement(2))


def test_one_that_waits_alone_lets_later_rows_pass_but_none_before_it(make: MakeRig) -> None:
    rig = make(Forward(), watermark_interval=0.2)
    rig.writer.emit_watermark(1)
    rig.writer.emit_watermark(2)
    rig.writer.emit(rows(0, 3))
    rig.now += 0.2
    rig.writer.on_time(rig.now)
    assert rig.read() == (WatermarkElement(1),), "rows came in between, so it waits for their message"
    rig.writer.flush()
    assert rig.read() == (numbers(0, 3), WatermarkElement(2))


def test_each_channel_has_its_own_turn(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2)
    rig.writer.emit(rows(0, 1))
    rig.writer.emit_watermark(1)
    assert rig.read_all() == [(), (WatermarkElement(1),)]
    rig.writer.flush()
    assert rig.read_all() == [((0,), WatermarkElement(1)), ()]


def test_the_first_watermark_that_may_go_makes_the_deadline(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2, watermark_interval=0.2)
    rig.writer.emit(rows(0, 1))
    rig.writer.emit_watermark(1)
    rig.now = 100.1
    rig.writer.flush()
    rig.writer.emit_watermark(2)
    assert rig.writer.deadline == pytest.approx(100.2), "channel 1 sent its last at 100.0, channel 0 at 100.1"
    rig.now = 100.2
    rig.writer.on_time(rig.now)
    assert rig.read_all() == [((0,), WatermarkElement(1)), (WatermarkElement(1), WatermarkElement(2))]
    assert rig.writer.deadline == pytest.approx(100.3)


def test_a_full_budget_does_not_let_watermarks_go_too_often(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=1), 2, limit=100, message_size=80)
    rig.writer.emit_watermark(1)
    rig.writer.emit_watermark(2)
    rig.budget.add_count().bytes = 101
    rig.writer.emit(rows(0, MESSAGE - 1))
    assert rig.writer.pending_bytes == 0
    rig.writer.flush()
    assert rig.read(0) == (WatermarkElement(1),)
    assert rig.read(1) == (WatermarkElement(1), numbers(0, MESSAGE - 1), WatermarkElement(2))


def test_a_status_goes_at_once_behind_rows_and_watermark(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2)
    rig.writer.emit(rows(0, 1))
    rig.writer.emit_watermark(7)
    rig.writer.emit_status(False)
    assert rig.read_all() == [
        ((0,), WatermarkElement(7), WatermarkStatus(False)),
        (WatermarkElement(7), WatermarkStatus(False)),
    ]


# ---- what is due: soft back-pressure


def test_emit_never_waits_and_what_does_not_fit_is_due(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2, message_size=800)
    rig.writer.emit(rows(0, 100))
    rig.writer.emit(rows(100, 100))
    assert rig.hard_waits == 0
    assert not rig.writer.is_available
    assert not rig.writer.drain()
    assert rig.writer.pending_bytes > 800


def test_room_wakes_the_task_and_it_drains(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2, message_size=800)
    rig.writer.emit(rows(0, 100))
    seen: tuple[object, ...] = ()
    while not rig.writer.is_available:
        wakes = rig.wakes
        seen += rig.read(buffers=1)
        assert rig.wakes == wakes + 1
        rig.writer.drain()
    rig.writer.flush()
    assert seen + rig.read() == (numbers(0, 100),)
    assert rig.writer.pending_bytes == 0


def test_slices_that_gather_do_not_make_it_unavailable(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2)
    rig.writer.emit(rows(0, 9))
    assert rig.writer.is_available
    assert rig.writer.drain()


def test_a_stuck_channel_does_not_hold_back_what_is_due_for_another(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2, segment=64, segments=8, cap=3, message_size=800)
    rig.writer.emit(rows(0, 100))
    rig.writer.emit(rows(100, 100))
    assert not rig.writer.is_available
    seen: tuple[object, ...] = ()
    while not seen:
        wakes = rig.wakes
        seen = rig.read(1)
        assert seen or rig.wakes > wakes, "room for channel 1 wakes though channel 0 is at its cap"
        rig.writer.drain()
        if rig.writer.pending_bytes and not rig.writer._due.has(1):
            rig.partition.flush(1)
    assert seen == (numbers(100, 100),)
    assert not rig.writer.is_available
    assert rig.partition.subpartition(0).queue_length == 3


def test_a_flush_while_something_is_due_happens_after_the_drain(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2, message_size=80, buffer_timeout=0.0)
    rig.writer.emit(rows(0, 20))
    assert not rig.writer.is_available
    seen: tuple[object, ...] = ()
    while not rig.writer.drain():
        seen += rig.read()
    assert seen + rig.read() == (numbers(0, 10), numbers(10, 10)), "the last, open segment was shown too"


def test_the_end_waits_behind_all_that_is_due(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2, message_size=80)
    rig.writer.emit(rows(0, 25))
    rig.writer.emit_watermark(9)
    rig.writer.finish()
    assert not rig.writer.is_available
    seen: tuple[object, ...] = ()
    while not rig.writer.drain():
        seen += rig.read()
    assert seen + rig.read() == (numbers(0, 12), numbers(12, 13), WatermarkElement(9), *END)
    assert rig.writer.pending_bytes == 0


def test_the_end_sends_the_last_rows_and_watermark_of_every_channel(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2)
    rig.writer.emit(rows(0, 1))
    rig.writer.emit_watermark(1)
    rig.writer.emit_watermark(2)
    rig.writer.finish()
    assert rig.read_all() == [((0,), WatermarkElement(2), *END), (WatermarkElement(1), WatermarkElement(2), *END)]
    assert rig.writer.is_available


def test_close_drops_everything(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2)
    rig.writer.emit(rows(0, 100))
    rig.writer.emit(rows(100, 5))
    rig.writer.close()
    assert rig.writer.is_available
    assert rig.writer.pending_bytes == rig.budget.used == 0


# ---- the budget: hard back-pressure


def test_beyond_the_budget_the_oldest_are_cut_early(make: MakeRig) -> None:
    rig = make(Rebalance(3, start=1), 3, limit=10 * ROW, message_size=1000)
    rig.writer.emit(rows(0, 3))
    rig.writer.emit(rows(10, 5))
    rig.writer.emit(rows(20, 2))
    assert rig.partition.bytes_out == 0
    rig.writer.emit(rows(3, 1))
    assert rig.writer.pending_bytes == 7 * ROW
    assert rig.hard_waits == 0
    rig.writer.emit(rows(15, 6))
    assert rig.writer.pending_bytes == 2 * ROW, "the oldest alone would not have been enough"
    for channel in range(3):
        rig.partition.flush(channel)
    assert rig.read_all() == [(), (numbers(0, 4),), ((*numbers(10, 5), *numbers(15, 6)),)]


class Skewed:
    """The last row of a batch to channel 1, all others to channel 0."""

    splits = True

    def select(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        last = batch.num_rows - 1
        return [(0, batch.slice(0, last)), (1, batch.slice(last))]


@pytest.mark.parametrize(("selector", "channels"), [(Skewed(), 2), (Shuffle(64, seed=1), 64)])
def test_batches_that_slices_of_several_channels_keep_alive_stay_within_the_budget(
    make: MakeRig, selector: ChannelSelector, channels: int
) -> None:
    """To cut what goes to one channel frees nothing of a batch of which another has rows."""
    rig = make(selector, channels, segments=200, message_size=16 << 10, limit=64 << 10)
    for first in range(0, 20_000, 500):
        rig.writer.emit(rows(first, 500))
        assert not rig.budget.is_exceeded
        assert rig.writer.is_available
    rig.writer.flush()
    values = [value for seen in rig.read_all() for message in seen for value in message]
    assert sorted(values) == list(range(20_000))


def test_others_count_for_the_budget_too(make: MakeRig) -> None:
    rig = make(Forward(), limit=100)
    rig.budget.add_count().bytes = 100
    rig.writer.emit(rows(0, 7))
    assert rig.writer.pending_bytes == 0
    assert rig.partition.bytes_out > 0


def test_a_holder_below_its_share_continues_even_when_another_uses_the_whole_budget(make: MakeRig) -> None:
    rig = make(Forward(), limit=100)
    rig.budget.add_count().bytes = 1000
    rig.writer.emit(rows(0, 6))
    assert rig.writer.pending_bytes == 6 * ROW
    assert rig.partition.bytes_out == 0


def test_the_writer_waits_hard_only_for_what_is_due_beyond_the_budget(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=4, message_size=80, limit=3000)
    first = 0
    while not rig.budget.is_exceeded:
        rig.writer.emit(rows(first, 20))
        first += 20
    assert rig.hard_waits == 0
    assert first >= 60
    rig.writer.emit(rows(first, 20))
    assert rig.hard_waits == 1
    assert not rig.budget.is_exceeded
    skipped = [value for message in rig.skipped for value in message]
    assert skipped == list(range(len(skipped)))
    assert len(skipped) >= first - 20


def test_what_is_due_within_the_budget_is_no_reason_to_wait(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=2, limit=1 << 20)
    for first in range(0, 200, 20):
        rig.writer.emit(rows(first, 20))
    assert rig.hard_waits == 0
    assert not rig.writer.is_available


def test_overdraft_is_for_the_second_batch_of_one_input_and_must_be_repaid_before_the_next(make: MakeRig) -> None:
    rig = make(Forward(), segment=64, segments=8, share=2, overdraft=2, message_size=80)
    rig.writer.emit(rows(0, 100))
    assert rig.pool.in_use == rig.pool.size == 2
    assert not rig.writer.is_available
    rig.writer.emit(rows(100, 10))
    assert rig.pool.in_use == 4
    assert rig.pool.is_overdrawn
    rig.writer.close()  # nothing is due any more: only the overdraft holds the task back
    while rig.pool.is_overdrawn:
        assert rig.writer.drain()
        assert not rig.writer.is_available
        wakes = rig.wakes
        rig.read(buffers=1)
        assert rig.wakes == wakes + 1
    assert rig.writer.is_available


def test_a_batch_split_over_several_channels_counts_once_until_its_last_slice_is_cut(make: MakeRig) -> None:
    schema = pa.schema({"n": pa.int64()})
    rig = make(KeyGroups(["n"], 2, 128), 2, message_size=1000, schema=schema)
    rig.writer.emit(rows(0, 50))
    assert rig.writer.pending_bytes == 50 * ROW
    rig.writer._cut(rig.writer._pending[0])
    assert rig.writer.pending_bytes == 50 * ROW
    rig.writer._cut(rig.writer._pending[1])
    assert rig.writer.pending_bytes == 0
    rig.writer.flush()
    seen = [value for channel in rig.read_all() for message in channel for value in message]
    assert sorted(seen) == list(range(50))


# ---- broadcast


def test_broadcast_serialises_once_for_all(make: MakeRig) -> None:
    rig = make(Broadcast(3), 3)
    with patch.object(BatchCodec, "encode", autospec=True, side_effect=BatchCodec.encode) as encode:
        rig.writer.emit(rows(0, 25))
        rig.writer.emit_watermark(5)
        rig.writer.finish()
    assert encode.call_count == 2
    assert rig.read_all() == [(numbers(0, 12), numbers(12, 13), WatermarkElement(5), *END)] * 3
    assert rig.writer.rows_out == 25


def test_a_slow_reader_of_a_broadcast_keeps_only_its_own_rest(make: MakeRig) -> None:
    rig = make(Broadcast(2), 2, segment=64, segments=10, cap=4, message_size=800)
    rig.writer.emit(rows(0, 100))
    while rig.writer._due.has(0):
        assert rig.read(0) == ()
        rig.writer.drain()
    rig.partition.flush(0)
    assert rig.read(0) == (numbers(0, 100),)
    assert rig.writer._due.channels == {1}
    while not rig.writer.drain():
        rig.read(1)
    assert rig.writer.pending_bytes == 0


# ---- latency markers


def test_a_marker_goes_to_one_channel_behind_what_is_pending_there(make: MakeRig) -> None:
    rig = make(Broadcast(3), 3, buffer_timeout=0.1)
    rig.writer.emit(rows(0, 2))
    rig.writer.emit_marker(LatencyMarker(5, 1, 0))
    assert rig.read_all() == [(), (), ()]
    rig.writer.on_time(200.0)
    seen = rig.read_all()
    assert sorted(map(len, seen)) == [1, 1, 2]
    assert max(seen, key=len) == (numbers(0, 2), LatencyMarker(5, 1, 0))


def test_a_marker_with_nothing_before_it_waits_for_the_timeout_like_a_row(make: MakeRig) -> None:
    rig = make(Forward(), buffer_timeout=0.1)
    rig.writer.emit_marker(LatencyMarker(5, 1, 0))
    assert rig.writer.deadline == pytest.approx(100.1)
    assert rig.read() == ()
    rig.writer.on_time(100.1)
    assert rig.read() == (LatencyMarker(5, 1, 0),)


def test_markers_reach_every_channel_in_time(make: MakeRig) -> None:
    rig = make(Rebalance(4, start=0), 4, buffer_timeout=0.0)
    for time in range(200):
        rig.writer.emit_marker(LatencyMarker(time, 1, 0))
    seen = rig.read_all()
    assert all(seen)
    assert sorted(marker.time for channel in seen for marker in channel) == list(range(200))


# ---- readers that want smaller buffers


def test_messages_shrink_with_the_buffers_that_a_reader_wants(make: MakeRig) -> None:
    """Rows of 8 bytes; half a segment makes half a message."""
    rig = make(Rebalance(2, start=0), 2, segment=32768, message_size=16384)
    rig.partition.subpartitions[0].buffer_size = 16384
    for channel in range(2):
        rig.writer.emit(rows(channel, 1024))
    assert rig.partition.bytes_out > 8192
    assert rig.writer.pending_bytes == 8192, "one of two has its message"
    rig.writer.flush()
    assert rig.read(0) == (numbers(0, 1024),)


def test_a_broadcast_heeds_the_reader_that_wants_least(make: MakeRig) -> None:
    rig = make(Broadcast(2), 2, segment=32768, message_size=16384)
    rig.partition.subpartitions[1].buffer_size = 16384
    rig.writer.emit(rows(0, 1024))
    assert rig.writer.pending_bytes == 0


# ---- barriers


def decoded(overtaken: list[memoryview]) -> list[int]:
    """The rows in what a barrier has overtaken on a channel, which begins with a message and ends with one."""
    deserializer = SpanningDeserializer(BatchCodec(SCHEMA))
    batches = [each for each in deserializer.feed(overtaken) if isinstance(each, pa.RecordBatch)]
    assert not deserializer.partial
    return [n for batch in batches for n in batch.column(0).to_pylist()]


ALIGNED = CheckpointBarrier(1, 0)
TIMED = CheckpointBarrier(1, 0, Alignment.TIMEOUT, 5)
PRIORITY = CheckpointBarrier(2, 0, Alignment.UNALIGNED)


def test_an_aligned_barrier_comes_behind_everything_pending(make: MakeRig) -> None:
    rig = make(Rebalance(2, start=0), 2, segment=512)
    rig.writer.emit(rows(0, 3))
    rig.writer.emit_watermark(7)
    rig.writer.write_barrier(ALIGNED)
    rig.writer.emit(rows(3, 2))
    rig.writer.flush()
    assert rig.writer.pending_bytes == 0
    assert rig.read_all() == [((0, 1, 2), WatermarkElement(7), ALIGNED), (WatermarkElement(7), ALIGNED)], (
        "and blocks what is behind"
    )


def test_a_priority_barrier_overtakes_segments_due_messages_and_pending_rows(make: MakeRig) -> None:
    rig = make(Forward(), segments=2, segment=512)
    rig.writer.emit(rows(0, 400))
    assert not rig.writer.is_available
    rig.writer.emit(rows(400, 5))
    overtaken = rig.writer.overtake(PRIORITY)
    size = sum(map(len, overtaken[0]))
    assert size == rig.partition.bytes_out + rig.writer.pending_bytes
    assert decoded(overtaken[0]) == list(range(405))
    assert rig.read(buffers=1) == (PRIORITY,)
    rig.writer.close()


def test_a_barrier_that_waits_behind_due_messages_overtakes_them_on_prioritise(make: MakeRig) -> None:
    rig = make(Forward(), segments=2, segment=512)
    rig.writer.emit(rows(0, 400))
    rig.writer.write_barrier(TIMED)
    rig.writer.emit(rows(400, 10))
    assert rig.writer.prioritise(9) == [None]
    [overtaken] = rig.writer.prioritise(1)
    assert overtaken is not None
    assert decoded(overtaken) == list(range(400)), "and nothing from behind it"
    assert rig.writer.prioritise(1) == [None]
    assert rig.read(buffers=1) == (TIMED.as_priority(),)
    rig.writer.close()


@pytest.mark.parametrize("buffer_timeout", [0.1, "adaptive"])
@pytest.mark.parametrize("count", [30, 100, 200, 201])
def test_what_a_due_barrier_overtakes_needs_no_other_flush(
    make: MakeRig, count: int, buffer_timeout: float | Literal["adaptive"]
) -> None:
    """In its place it would have ended the message before it, in whatever segment that ends."""
    rig = make(Forward(), segment=192, cap=2, message_size=1 << 20, buffer_timeout=buffer_timeout)
    rig.partition.subpartitions[0].credit_changed(False)
    rig.writer.emit(rows(0, count))
    rig.writer.write_barrier(TIMED)
    assert rig.writer.prioritise(1) != [None]
    seen = [*rig.read()]
    while not rig.writer.drain():
        seen += rig.read()
    assert [*seen, *rig.read()] == [TIMED.as_priority(), tuple(range(count))]


def test_a_queued_barrier_overtakes_on_the_channels_where_it_still_is(make: MakeRig) -> None:
    rig = make(Broadcast(2), 2, segment=512)
    rig.writer.emit(rows(0, 10))
    rig.writer.write_barrier(TIMED)
    assert rig.read(0)[-1] == TIMED
    left, overtaken = rig.writer.prioritise(1)
    assert left is None
    assert overtaken is not None
    assert decoded(overtaken) == list(range(10))
    assert rig.read(1)[0] == TIMED.as_priority()
    assert rig.writer.prioritise(1) == [None, None]
