"""The queue of one channel, rule by rule: notifications, polls, backlog, events, release."""

from __future__ import annotations

import pytest

from headgate.errors import ExchangeError
from headgate.exchange.subpartition import EventConsumer, PipelinedSubpartition
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.buffer_builder import BufferBuilder
from headgate.memory.segment import MemorySegment
from headgate.protocol.sender import PolledBuffer
from headgate.records.events import (
    Alignment,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Event,
    decode_event,
)
from tests.exchange.link import OneAtATime
from tests.exchange.rig import poll_one

SIZE = 8
END = EndOfData()


class Queue:
    """A subpartition between a writer that fills numbered segments and a reader that counts its notifications."""

    def __init__(self, attached: bool = True) -> None:
        self.subpartition = PipelinedSubpartition(0, OneAtATime())
        self.notified = 0
        self.out = 0
        if attached:
            self.attach()

    def attach(self) -> None:
        self.subpartition.attach(self._on_data)

    def _on_data(self) -> None:
        self.notified += 1

    def _back(self, *segments: MemorySegment) -> None:
        self.out -= len(segments)

    def begin(self, written: bytes = b"") -> BufferBuilder:
        """Queue a segment as the writer does: empty, then filled in place."""
        builder = BufferBuilder(MemorySegment(self.out, memoryview(bytearray(SIZE))), self._back)
        self.out += 1
        self.subpartition.add(builder.create_consumer())
        self.subpartition.announce()
        builder.append(memoryview(written))
        return builder

    def end(self, builder: BufferBuilder) -> None:
        builder.finish()
        self.subpartition.announce()

    def full(self, written: bytes = b"12345678") -> None:
        self.end(self.begin(written))

    def event(self, event: Event = END) -> None:
        self.subpartition.add(EventConsumer(event))
        self.subpartition.announce()

    def poll(self) -> bytes | Event | None:
        polled = poll_one(self.subpartition)
        self.subpartition.validate()
        if polled is None:
            return None
        content = bytes(polled.buffer.view)
        polled.buffer.recycle()
        return decode_event(content) if polled.is_event else content

    @property
    def reported_backlog(self) -> int:
        polled = poll_one(self.subpartition)
        assert polled is not None
        polled.buffer.recycle()
        return polled.backlog


@pytest.fixture
def queue() -> Queue:
    return Queue()


# ---- notifications


def test_an_unfinished_buffer_does_not_notify(queue: Queue) -> None:
    queue.begin(b"123")
    assert queue.notified == 0
    assert queue.poll() is None


def test_the_first_finished_buffer_notifies_the_reader(queue: Queue) -> None:
    queue.full()
    assert queue.notified == 1


def test_the_second_finished_buffer_does_not(queue: Queue) -> None:
    queue.full()
    queue.full()
    queue.full()
    assert queue.notified == 1


def test_a_buffer_that_is_finished_when_the_next_is_added_notifies_too(queue: Queue) -> None:
    queue.begin(b"123").finish()
    queue.begin(b"4")
    assert queue.notified == 1
    assert queue.poll() == b"123"


def test_who_adds_several_announces_them_once(queue: Queue) -> None:
    for _ in range(2):
        builder = BufferBuilder(MemorySegment(0, memoryview(bytearray(SIZE))), lambda *segments: None)
        queue.subpartition.add(builder.create_consumer())
        builder.append(memoryview(b"1"))
        builder.finish()
    assert queue.notified == 0
    queue.subpartition.announce()
    assert queue.notified == 1


def test_after_the_reader_has_polled_everything_the_next_finished_buffer_notifies_again(queue: Queue) -> None:
    queue.full(b"1")
    queue.full(b"2")
    assert queue.poll() == b"1"
    assert queue.poll() == b"2"
    queue.full(b"3")
    assert queue.notified == 2
    assert queue.poll() == b"3"
    assert queue.poll() is None


def test_a_reader_that_knows_of_more_data_is_not_notified(queue: Queue) -> None:
    queue.full(b"1")
    queue.full(b"2")
    polled = poll_one(queue.subpartition)
    assert polled is not None
    assert polled.next_is_event is False
    polled.buffer.recycle()
    queue.full(b"3")
    assert queue.notified == 1


def test_an_event_in_an_empty_queue_tells(queue: Queue) -> None:
    queue.event()
    assert queue.notified == 1


def test_an_event_behind_a_finished_buffer_does_not_notify_again(queue: Queue) -> None:
    queue.full()
    queue.event()
    assert queue.notified == 1


def test_an_event_behind_a_buffer_that_was_closed_for_it_tells(queue: Queue) -> None:
    queue.begin(b"12").finish()
    queue.event()
    assert queue.notified == 1
    assert queue.poll() == b"12"
    assert queue.poll() == EndOfData()
    assert queue.poll() is None


def test_the_end_tells(queue: Queue) -> None:
    queue.subpartition.finish()
    assert queue.notified == 1
    assert isinstance(queue.poll(), EndOfPartition)


def test_a_reader_is_notified_when_it_attaches() -> None:
    queue = Queue(attached=False)
    queue.full()
    assert queue.notified == 0
    queue.attach()
    assert queue.notified == 1


def test_a_reader_that_attaches_to_an_empty_queue_is_not_notified() -> None:
    queue = Queue(attached=False)
    queue.begin(b"1")
    queue.attach()
    assert queue.notified == 0


def test_there_is_one_reader(queue: Queue) -> None:
    with pytest.raises(ExchangeError, match="being read already"):
        queue.attach()
    late = Queue(attached=False)
    late.subpartition.release()
    with pytest.raises(ExchangeError, match="was released"):
        late.attach()


# ---- flush


def test_a_flush_without_data_does_not_notify_and_requests_nothing(queue: Queue) -> None:
    queue.subpartition.flush()
    builder = queue.begin()
    queue.subpartition.flush()
    assert queue.notified == 0
    assert not queue.subpartition.is_available(True)
    builder.append(memoryview(b"1"))
    assert queue.poll() is None, "a flush is for what was there"


def test_a_flush_shows_what_the_last_buffer_holds_once(queue: Queue) -> None:
    builder = queue.begin(b"123")
    queue.subpartition.flush()
    queue.subpartition.flush()
    assert queue.notified == 1
    assert queue.poll() == b"123"
    assert queue.poll() is None
    queue.subpartition.flush()
    assert queue.notified == 1, "nothing new is in it"
    builder.append(memoryview(b"45"))
    queue.subpartition.flush()
    assert queue.notified == 2
    assert queue.poll() == b"45"
    builder.append(memoryview(b"678"))
    queue.end(builder)
    assert queue.notified == 3
    assert queue.poll() == b"678"
    assert queue.out == 0, "one segment, sent in three slices"


def test_a_flush_behind_a_finished_buffer_shows_all_and_does_not_notify_again(queue: Queue) -> None:
    queue.full(b"1")
    queue.begin(b"2")
    queue.subpartition.flush()
    assert queue.notified == 1
    assert queue.poll() == b"1"
    assert queue.poll() == b"2"
    assert queue.poll() is None


def test_buffers_added_during_a_pending_flush_do_not_notify(queue: Queue) -> None:
    builder = queue.begin(b"1")
    queue.subpartition.flush()
    queue.end(builder)
    queue.full(b"2")
    queue.event()
    assert queue.notified == 1
    assert queue.poll() == b"1"
    assert queue.poll() == b"2"
    assert queue.poll() == EndOfData()


def test_a_flush_is_over_when_the_reader_has_reached_the_last_buffer(queue: Queue) -> None:
    queue.full(b"1")
    builder = queue.begin(b"2")
    queue.subpartition.flush()
    queue.poll()
    assert queue.subpartition.is_available(True), "the flush stands until the last buffer was looked at"
    queue.poll()
    builder.append(memoryview(b"3"))
    assert not queue.subpartition.is_available(True)


# ---- what can be polled


def test_without_credit_only_an_event_at_the_head_is_available(queue: Queue) -> None:
    assert not queue.subpartition.is_available(True)
    assert not queue.subpartition.is_available(False)
    queue.full(b"1")
    queue.event()
    assert queue.subpartition.is_available(True)
    assert not queue.subpartition.is_available(False)
    queue.poll()
    assert queue.subpartition.is_available(False)


def test_the_reader_sees_what_comes_next(queue: Queue) -> None:
    queue.full(b"1")
    queue.full(b"2")
    queue.event()
    queue.begin(b"3")
    seen = []
    while (polled := poll_one(queue.subpartition)) is not None:
        seen.append((bytes(polled.buffer.view), polled.is_event, polled.next_is_event))
        polled.buffer.recycle()
    assert [(is_event, following) for _, is_event, following in seen] == [(False, False), (False, True), (True, None)]


def run(queue: Queue, content: bytes) -> Buffer:
    """Segments that were filled together, as the writer of a large message has them."""
    segments = [
        MemorySegment(number, memoryview(bytearray(content[at : at + SIZE].ljust(SIZE, b"."))))
        for number, at in enumerate(range(0, len(content), SIZE))
    ]
    queue.out += len(segments)
    return Buffer(segments, 0, len(content), queue._back)


def looked(polled: list[PolledBuffer]) -> list[tuple[bytes, int, int, bool | None]]:
    """What one look shows: bytes, backlog, number, and whether an event is next; all is recycled."""
    seen = [(b"".join(p.buffer.views), p.backlog, p.sequence, p.next_is_event) for p in polled]
    recycle_all(p.buffer for p in polled)
    return seen


def test_a_run_is_queued_in_one_step_and_counts_as_its_segments(queue: Queue) -> None:
    queue.subpartition.add_filled(run(queue, b"11111111222222223"))
    assert queue.notified == 0
    queue.subpartition.announce()
    assert queue.notified == 1
    assert queue.subpartition.reported_backlog == 3
    queue.event()
    assert queue.subpartition.backlog == 3
    assert queue.subpartition.queue_length == 4
    queue.begin(b"4")
    assert queue.subpartition.backlog == 4
    assert queue.subpartition.queued_bytes == 18
    assert looked(queue.subpartition.poll(8)) == [(b"11111111222222223", 0, 0, True)]
    assert queue.out == 1
    assert queue.subpartition.backlog == 1
    queue.subpartition.validate()


def test_a_run_can_be_flushed_and_closed(queue: Queue) -> None:
    queue.subpartition.add_filled(run(queue, b"123456781"))
    queue.subpartition.flush()
    assert queue.notified == 1
    assert looked(queue.subpartition.poll(2)) == [(b"123456781", 0, 0, None)]
    queue.subpartition.add_filled(run(queue, b"123456782"))
    queue.subpartition.release()
    queue.subpartition.add_filled(run(queue, b"123456783"))
    assert queue.out == 0


def test_a_run_that_is_longer_than_the_reader_wants_is_split(queue: Queue) -> None:
    queue.full(b"0")
    queue.subpartition.add_filled(run(queue, b"11111111222222223333333344444444"))
    queue.event()
    assert looked(queue.subpartition.poll(2)) == [(b"0", 4, 0, False)], "not split while there is something else"
    assert looked(queue.subpartition.poll(1)) == [(b"11111111", 3, 1, False)]
    assert queue.notified == 1
    assert queue.subpartition.is_available(True)
    assert not queue.subpartition.is_available(False)
    assert queue.out == queue.subpartition.backlog == 3
    queue.subpartition.validate()
    assert looked(queue.subpartition.poll(2)) == [(b"2222222233333333", 1, 2, False)]
    assert looked(queue.subpartition.poll(2)) == [(b"44444444", 0, 4, True)]
    assert [p.sequence for p in queue.subpartition.poll(2)] == [5]
    assert queue.out == 0


def test_the_part_of_a_run_that_is_left_alone_is_still_there_after_a_flush(queue: Queue) -> None:
    queue.subpartition.add_filled(run(queue, b"11111111222222223"))
    queue.subpartition.flush()
    assert looked(queue.subpartition.poll(1)) == [(b"11111111", 2, 0, False)]
    assert looked(queue.subpartition.poll(1)) == [(b"22222222", 1, 1, False)]
    assert looked(queue.subpartition.poll(1)) == [(b"3", 0, 2, None)]


def test_the_numbers_go_round_within_a_run(queue: Queue) -> None:
    queue.subpartition._sequence = 2**32 - 2
    queue.subpartition.add_filled(run(queue, bytes(3 * SIZE)))
    queue.full(b"x")
    assert [number for _, _, number, _ in looked(queue.subpartition.poll(8))] == [2**32 - 2, 1]


def test_a_released_subpartition_gives_back_the_part_of_a_run_that_is_left(queue: Queue) -> None:
    queue.subpartition.add_filled(run(queue, bytes(4 * SIZE)))
    (polled,) = queue.subpartition.poll(1)
    queue.subpartition.release()
    assert queue.out == 1
    polled.buffer.recycle()
    assert queue.out == 0


@pytest.mark.parametrize("split", ["before", "after"])
@pytest.mark.parametrize("first", ["the reader", "the keeper"])
def test_an_overtaken_run_that_is_split_comes_back_once(queue: Queue, split: str, first: str) -> None:
    content = b"111111112222222233333333444"
    queue.subpartition.add_filled(run(queue, content))
    read = b""
    if split == "before":
        ((part, *_),) = looked(queue.subpartition.poll(1))
        read += part
    overtaken = queue.subpartition.overtake(PRIORITY)
    assert b"".join(view for buffer in overtaken for view in buffer.views) == content[len(read) :]
    assert queue.poll() == PRIORITY
    held = []
    for _ in range(2):
        held += [polled.buffer for polled in queue.subpartition.poll(2)]
    read += b"".join(view for buffer in held for view in buffer.views)
    assert read == content
    assert queue.poll() is None
    left = 4 if split == "after" else 3
    assert queue.out == left
    recycle_all(held if first == "the reader" else overtaken)
    assert queue.out == left, "they still have references"
    rest = overtaken if first == "the reader" else held
    assert b"".join(view for buffer in rest for view in buffer.views) == content[(4 - left) * SIZE :]
    recycle_all(rest)
    assert queue.out == 0


def test_several_buffers_in_one_look_up_to_a_limit_or_an_event(queue: Queue) -> None:
    for content in (b"1", b"2", b"3", b"4"):
        queue.full(content)
    queue.event()
    looks = []
    while polled := queue.subpartition.poll(3):
        looks.append([(bytes(p.buffer.view), p.backlog, p.sequence, p.next_is_event) for p in polled])
        for p in polled:
            p.buffer.recycle()
    event = bytes([0, 0, 0, 8, 1])
    assert looks == [
        [(b"1", 3, 0, False), (b"2", 2, 1, False), (b"3", 1, 2, False)],
        [(b"4", 0, 3, True)],
        [(event, 0, 4, None)],
    ]


def test_a_buffer_that_was_finished_with_nothing_new_is_passed_over(queue: Queue) -> None:
    builder = queue.begin(b"12")
    queue.subpartition.flush()
    assert queue.poll() == b"12"
    queue.end(builder)
    queue.full(b"34")
    assert queue.poll() == b"34"
    assert queue.poll() is None
    assert queue.out == 0


def test_a_finished_buffer_with_nothing_at_all_gives_its_segment_back(queue: Queue) -> None:
    queue.end(queue.begin())
    assert queue.poll() is None
    assert queue.out == 0


def test_sequence_numbers_count_every_buffer_and_event_and_wrap(queue: Queue) -> None:
    queue.subpartition._sequence = (1 << 32) - 2
    numbers = []
    for _ in range(2):
        queue.full(b"1")
        queue.event()
    while (polled := poll_one(queue.subpartition)) is not None:
        numbers.append(polled.sequence)
        polled.buffer.recycle()
    assert numbers == [(1 << 32) - 2, (1 << 32) - 1, 0, 1]


# ---- backlog: the data buffers still queued behind the one that was polled


def test_the_unfinished_tail_does_not_count(queue: Queue) -> None:
    queue.full()
    queue.full()
    queue.full()
    queue.begin(b"tail")
    assert queue.subpartition.backlog == 4
    assert [queue.reported_backlog, queue.reported_backlog, queue.reported_backlog] == [2, 1, 0]


def test_the_unfinished_tail_counts_when_a_flush_was_asked_for(queue: Queue) -> None:
    queue.full()
    queue.begin(b"tail")
    queue.subpartition.flush()
    assert queue.reported_backlog == 1


def test_the_tail_counts_when_it_is_finished(queue: Queue) -> None:
    queue.full()
    queue.full()
    assert queue.reported_backlog == 1


def test_events_never_count_and_close_what_is_before_them(queue: Queue) -> None:
    queue.full()
    queue.begin(b"tail").finish()
    queue.event()
    queue.event()
    assert [queue.reported_backlog, queue.reported_backlog, queue.reported_backlog] == [1, 0, 0]


def test_a_slice_of_the_tail_leaves_it_in_the_queue_but_not_in_the_backlog(queue: Queue) -> None:
    queue.begin(b"1")
    queue.subpartition.flush()
    assert queue.reported_backlog == 0
    assert queue.subpartition.backlog == queue.subpartition.queue_length == 1


# ---- barriers

ALIGNED = CheckpointBarrier(1, 0)
TIMED = CheckpointBarrier(1, 0, Alignment.TIMEOUT, 5)
PRIORITY = CheckpointBarrier(1, 0, Alignment.UNALIGNED)


@pytest.mark.parametrize("barrier", [ALIGNED, TIMED])
def test_a_barrier_that_blocks_stays_in_order_and_ends_what_can_be_polled(
    queue: Queue, barrier: CheckpointBarrier
) -> None:
    queue.full(b"1")
    queue.event(barrier)
    queue.full(b"2")
    assert queue.poll() == b"1"
    polled = queue.subpartition.poll(10)
    assert len(polled) == 1
    assert polled[0].backlog == 0
    assert polled[0].next_is_event is None
    assert not queue.subpartition.is_available(True)
    assert not queue.subpartition.is_available(False)
    assert queue.subpartition.poll() == []
    assert queue.subpartition.reported_backlog == 0


def test_a_blocked_reader_is_not_notified(queue: Queue) -> None:
    queue.event(ALIGNED)
    queue.poll()
    notified = queue.notified
    queue.full(b"1")
    queue.begin(b"2")
    queue.subpartition.flush()
    queue.subpartition.overtake(CheckpointBarrier(2, 0, Alignment.UNALIGNED))
    assert queue.notified == notified


def test_resume_notifies_of_the_data_that_arrived_while_blocked(queue: Queue) -> None:
    queue.event(ALIGNED)
    queue.poll()
    queue.full(b"1")
    notified = queue.notified
    queue.subpartition.resume()
    assert queue.notified == notified + 1
    assert queue.subpartition.reported_backlog == 1
    assert queue.poll() == b"1"
    assert queue.poll() is None


def test_only_a_blocked_subpartition_can_be_resumed(queue: Queue) -> None:
    with pytest.raises(ExchangeError, match="no barrier blocks"):
        queue.subpartition.resume()
    queue.subpartition.release()
    queue.subpartition.resume()


def test_a_priority_barrier_overtakes_all_that_is_queued_and_hands_it_over(queue: Queue) -> None:
    queue.full(b"12")
    queue.subpartition.add_filled(run(queue, b"3"))
    queue.event()
    builder = queue.begin(b"45")
    overtaken = queue.subpartition.overtake(PRIORITY)
    builder.append(memoryview(b"6"))
    assert [bytes(buffer.view) for buffer in overtaken] == [b"12", b"3", b"45"], "6 was not there yet"
    for buffer in overtaken:
        buffer.recycle()
    queue.subpartition.flush()
    assert queue.poll() == PRIORITY
    assert queue.poll() == b"12"
    assert queue.poll() == b"3"
    assert queue.poll() == END
    assert queue.poll() == b"456"
    queue.end(builder)
    assert queue.poll() is None
    assert queue.out == 0


def test_what_is_overtaken_is_the_rest_that_the_reader_has_not_seen(queue: Queue) -> None:
    builder = queue.begin(b"12")
    queue.subpartition.flush()
    queue.poll()
    assert queue.subpartition.overtake(PRIORITY) == []
    builder.append(memoryview(b"3"))
    overtaken = queue.subpartition.overtake(CheckpointBarrier(2, 0, Alignment.UNALIGNED))
    assert [bytes(buffer.view) for buffer in overtaken] == [b"3"]
    overtaken[0].recycle()
    queue.end(builder)
    assert queue.poll() == PRIORITY, "of two the first goes first"


def test_overtaken_data_outlive_the_queue(queue: Queue) -> None:
    queue.full(b"12")
    overtaken = queue.subpartition.overtake(PRIORITY)
    queue.subpartition.release()
    assert queue.out == 1
    assert bytes(overtaken[0].view) == b"12"
    overtaken[0].recycle()
    assert queue.out == 0


def test_a_priority_barrier_needs_no_credit_and_notifies_a_reader_that_knows_of_data(queue: Queue) -> None:
    queue.full(b"1")
    assert not queue.subpartition.is_available(False)
    notified = queue.notified
    for buffer in queue.subpartition.overtake(PRIORITY):
        buffer.recycle()
    assert queue.notified == notified + 1
    assert queue.subpartition.is_available(False)
    assert queue.subpartition.reported_backlog == 1


def test_a_reader_in_this_process_asks_for_priority_alone() -> None:
    queue, urgent = Queue(attached=False), []
    queue.subpartition.attach(queue._on_data, lambda: urgent.append(1))
    queue.full(b"1")
    assert queue.subpartition.poll_priority() is None
    for buffer in queue.subpartition.overtake(PRIORITY):
        buffer.recycle()
    assert urgent == [1]
    assert queue.notified == 1
    assert queue.subpartition.poll_priority() == PRIORITY
    assert queue.subpartition.poll_priority() is None
    assert queue.poll() == b"1"


def test_a_barrier_that_waits_too_long_is_taken_out_and_overtakes(queue: Queue) -> None:
    queue.full(b"1")
    queue.event(TIMED)
    queue.full(b"2")
    assert queue.subpartition.prioritise(2) is None
    overtaken = queue.subpartition.prioritise(1)
    assert overtaken is not None
    assert [bytes(buffer.view) for buffer in overtaken] == [b"1"]
    overtaken[0].recycle()
    assert queue.subpartition.prioritise(1) is None
    assert queue.poll() == TIMED.as_priority()
    assert queue.poll() == b"1"
    assert queue.poll() == b"2", "nothing blocks"


def test_an_aligned_barrier_never_overtakes_nor_does_one_that_has_gone(queue: Queue) -> None:
    queue.event(ALIGNED)
    assert queue.subpartition.prioritise(1) is None
    queue.poll()
    queue.subpartition.resume()
    queue.event(TIMED)
    queue.poll()
    assert queue.subpartition.prioritise(1) is None


def test_nothing_is_overtaken_after_the_end(queue: Queue) -> None:
    queue.full(b"1")
    queue.subpartition.finish()
    assert queue.subpartition.overtake(PRIORITY) == []
    assert queue.poll() == b"1"


# ---- what the reader asks for


def test_a_reader_without_credit_of_its_own_gets_empty_buffers_back() -> None:
    queue = Queue(attached=False)
    queue.subpartition.attach(queue._on_data, sends_empty=True)
    builder = queue.begin(b"12")
    queue.subpartition.flush()
    assert queue.poll() == b"12"
    queue.end(builder)
    assert queue.poll() == b""
    assert queue.out == 0


def test_it_is_settled_when_the_reader_has_processed_all_but_not_when_it_has_left() -> None:
    """A reader whose connection is lost leaves. A producer that ended then would be finished in a checkpoint that lacks
    the rows which were on their way."""
    settled: list[int] = []
    for leave, is_settled in ((PipelinedSubpartition.acknowledge, True), (PipelinedSubpartition.release, False)):
        subpartition = PipelinedSubpartition(0, OneAtATime(), lambda: settled.append(1))
        assert not subpartition.is_settled
        leave(subpartition)
        assert subpartition.is_settled == is_settled
    assert settled == [1, 1]


# ---- the end


def test_release_gives_everything_back_and_takes_no_more(queue: Queue) -> None:
    queue.full()
    queue.event()
    builder = queue.begin(b"tail")
    queue.subpartition.release()
    queue.subpartition.release()
    assert queue.subpartition.is_released
    assert queue.subpartition.queue_length == queue.subpartition.backlog == 0
    assert queue.out == 1, "the task is still filling one"
    builder.finish()
    assert queue.out == 0
    notified = queue.notified
    queue.full()
    queue.event()
    queue.subpartition.flush()
    queue.subpartition.finish()
    assert queue.out == 0
    assert queue.notified == notified
    assert queue.poll() is None


def test_a_slice_that_is_being_sent_outlives_the_release(queue: Queue) -> None:
    queue.full(b"12")
    polled = poll_one(queue.subpartition)
    assert polled is not None
    queue.subpartition.release()
    assert bytes(polled.buffer.view) == b"12"
    assert queue.out == 1
    polled.buffer.recycle()
    assert queue.out == 0


def test_after_the_end_nothing_is_taken(queue: Queue) -> None:
    queue.subpartition.finish()
    queue.subpartition.finish()
    queue.full()
    assert queue.out == 0
    assert queue.poll() == EndOfPartition()
    assert queue.poll() is None


# ---- a writer that waits for its reader to be starved


class Starvation:
    """The number of times that a writer was notified of its starved reader."""

    def __init__(self, queue: Queue) -> None:
        self.notified = 0
        queue.subpartition.on_starved = self

    def __call__(self) -> None:
        self.notified += 1


def test_a_reader_with_nothing_to_look_at_is_starved() -> None:
    queue = Queue()
    assert queue.subpartition.watch_for_starvation(notify=False)
    builder = queue.begin(b"123")
    assert queue.subpartition.watch_for_starvation(notify=False), "what is not flushed cannot be seen"
    queue.subpartition.flush()
    assert not queue.subpartition.watch_for_starvation(notify=False)
    assert queue.poll() == b"123"
    assert queue.subpartition.watch_for_starvation(notify=False)
    queue.end(builder)


def test_a_writer_is_notified_once_when_the_reader_has_polled_the_last_buffer() -> None:
    queue = Queue()
    starvation = Starvation(queue)
    queue.full()
    queue.full()
    assert not queue.subpartition.watch_for_starvation(notify=True)
    queue.poll()
    assert starvation.notified == 0
    queue.poll()
    queue.poll()
    assert starvation.notified == 1
    queue.full()
    queue.poll()
    assert starvation.notified == 1, "it did not ask again"


def test_a_reader_is_starved_when_a_barrier_that_overtook_was_the_last_there_was() -> None:
    queue = Queue()
    starvation = Starvation(queue)
    queue.subpartition.overtake(PRIORITY)
    assert not queue.subpartition.watch_for_starvation(notify=True)
    assert queue.subpartition.poll_priority() == PRIORITY
    assert starvation.notified == 1


def test_a_reader_without_credit_is_not_starved_until_it_has_some() -> None:
    queue = Queue()
    starvation = Starvation(queue)
    queue.subpartition.credit_changed(False)
    assert not queue.subpartition.watch_for_starvation(notify=True)
    queue.subpartition.credit_changed(True)
    assert starvation.notified == 1
    assert queue.subpartition.watch_for_starvation(notify=False)


def test_no_reader_is_starved_before_it_attaches_or_after_it_has_left() -> None:
    queue = Queue(attached=False)
    starvation = Starvation(queue)
    assert not queue.subpartition.watch_for_starvation(notify=True)
    queue.attach()
    assert starvation.notified == 1
    assert queue.subpartition.watch_for_starvation(notify=False)
    queue.subpartition.release()
    assert not queue.subpartition.watch_for_starvation(notify=True)
