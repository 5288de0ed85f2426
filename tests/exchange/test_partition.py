"""A result partition: bytes into segments without waiting, the cap per subpartition, who is woken when room comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.local_pool import LocalBufferPool
from headgate.memory.network_pool import NetworkBufferPool
from headgate.records.events import EndOfData, EndOfPartition
from headgate.records.spanning import SpanningSerializer
from tests.exchange.link import output_parts, write_bytes
from tests.exchange.rig import poll_one
from tests.memory.conftest import CheckedLocks, request_one

SIZE = 8


class Output:
    """A partition, its pool, and the wake-ups of its task."""

    def __init__(self, channels: int, segments: int, cap: int, total: int) -> None:
        self.network = NetworkBufferPool(total, SIZE, CheckedLocks())
        self.wakes = 0
        parts = output_parts(self.network, segments - channels - 1, cap)
        self.partition = parts.partition("out", channels, self._wake)
        self.pool = self.partition.pool

    def _wake(self) -> None:
        self.wakes += 1

    def write(self, channel: int, data: bytes) -> int:
        return write_bytes(self.partition, channel, data)

    def poll(self, channel: int) -> Buffer:
        polled = poll_one(self.partition.subpartition(channel))
        assert polled is not None
        return polled.buffer

    def read(self, channel: int) -> bytes:
        """All that a reader may see by now."""
        content, subpartition = b"", self.partition.subpartition(channel)
        while (polled := poll_one(subpartition)) is not None:
            content += bytes(polled.buffer.view)
            polled.buffer.recycle()
        return content

    def close(self) -> None:
        self.partition.release()
        self.pool.destroy()
        self.partition.validate()
        self.network.validate()
        assert self.network.holders() == {}
        self.network.close()


MakeOutput = Callable[..., Output]


@pytest.fixture
def make() -> Iterator[MakeOutput]:
    outputs: list[Output] = []

    def make_output(channels: int = 1, segments: int = 10, cap: int = 100, total: int | None = None) -> Output:
        outputs.append(Output(channels, segments, cap, total or segments))
        return outputs[-1]

    yield make_output
    for output in outputs:
        output.close()


def test_bytes_span_segments_and_leave_the_last_one_open(make: MakeOutput) -> None:
    output = make()
    assert output.write(0, b"0123456789") == 10
    assert output.write(0, b"abc") == 3
    assert output.pool.in_use == 2
    assert output.read(0) == b"01234567"
    output.partition.flush(0)
    assert output.read(0) == b"89abc"
    assert output.partition.bytes_out == 13


def test_a_full_segment_is_closed_at_once_and_none_is_taken_ahead(make: MakeOutput) -> None:
    output = make()
    assert output.write(0, bytes(SIZE)) == SIZE
    assert output.pool.in_use == 1
    output.poll(0).recycle()
    assert output.pool.in_use == 0


def lengths(output: Output, channel: int = 0) -> list[int]:
    """How many segments each buffer has that a reader may see, up to 100; they are sent."""
    polls = output.partition.subpartition(channel).poll(100)
    recycle_all(polled.buffer for polled in polls)
    return [len(polled.buffer.segments) for polled in polls]


def test_what_fills_segments_is_one_buffer_and_a_short_rest_waits_for_more(make: MakeOutput) -> None:
    output = make()
    assert output.write(0, bytes(2 * SIZE + 1)) == 2 * SIZE + 1
    assert output.partition.subpartition(0).backlog == 3
    assert lengths(output) == [2]
    assert output.write(0, b"1") == 1, "there is room for it behind the rest"
    output.partition.flush(0)
    assert output.pool.in_use == 1
    assert output.read(0) == bytes(1) + b"1"


@pytest.mark.parametrize("size", [6, 7, 2 * SIZE - 4, 3 * SIZE + 7, 9 * SIZE + 4])
def test_an_end_that_wastes_little_has_a_segment_to_itself(make: MakeOutput, size: int) -> None:
    output = make(segments=12)
    count = -(-size // SIZE)
    assert output.write(0, bytes(size)) == size
    assert output.partition.subpartition(0).backlog == count
    assert output.write(0, b"1") == 1
    assert lengths(output) == [count], "without a flush, and what comes next is not with it"


@pytest.mark.parametrize("size", [5, SIZE + 3, 3 * SIZE + 3, 9 * SIZE + 1])
def test_an_end_that_wastes_more_waits(make: MakeOutput, size: int) -> None:
    output = make(segments=12)
    assert output.write(0, bytes(size)) == size
    assert output.read(0) == bytes(size // SIZE * SIZE)


def test_a_long_element_of_full_segments_takes_no_more(make: MakeOutput) -> None:
    output = make()
    assert output.write(0, bytes(6 * SIZE)) == 6 * SIZE
    assert output.pool.in_use == 6
    assert lengths(output) == [6]
    assert output.pool.in_use == 0


def test_a_run_begins_where_the_open_segment_ends(make: MakeOutput) -> None:
    output = make()
    output.write(0, b"abc")
    assert output.write(0, bytes(2 * SIZE - 1)) == 2 * SIZE - 1
    assert output.pool.in_use == 3
    assert lengths(output) == [1, 1], "the last is not full"
    output.partition.flush(0)
    assert lengths(output) == [1]


def test_a_run_is_as_long_as_there_are_segments(make: MakeOutput) -> None:
    output = make(segments=3)
    record = SpanningSerializer([memoryview(bytes(range(60)))])
    assert not output.partition.write(0, record)
    assert record.remaining == 60 - 3 * SIZE
    sent = output.partition.subpartition(0).poll(100)
    assert b"".join(sent[0].buffer.views) == bytes(range(3 * SIZE))
    assert len(sent) == 1
    sent[0].buffer.recycle()
    assert output.wakes == 1, "once for all of them"
    assert not output.partition.write(0, record)
    assert lengths(output) == [3]
    assert output.partition.write(0, record)
    assert lengths(output) == [2]
    assert output.partition.bytes_out == 60


def test_a_reader_that_wants_less_in_a_buffer_gets_no_runs(make: MakeOutput) -> None:
    output = make()
    output.partition.subpartition(0).buffer_size = SIZE - 2
    assert output.write(0, bytes(3 * SIZE)) == 3 * SIZE
    assert lengths(output) == [1, 1, 1, 1]


def test_without_a_segment_the_rest_stays_with_the_writer(make: MakeOutput) -> None:
    output = make(segments=2)
    assert output.write(0, bytes(20)) == 2 * SIZE
    assert output.write(0, bytes(1)) == 0
    assert output.wakes == 0
    output.poll(0).recycle()
    assert output.wakes == 1
    assert output.write(0, bytes(4)) == 4


def test_an_incomplete_write_is_woken_once_and_a_complete_one_never(make: MakeOutput) -> None:
    output = make(segments=3)
    output.write(0, bytes(2 * SIZE))
    output.poll(0).recycle()
    assert output.wakes == 0, "no write needs a segment"
    output.write(0, bytes(3 * SIZE))
    output.poll(0).recycle()
    output.poll(0).recycle()
    assert output.wakes == 1, "the task looks at everything when it is woken"


def test_the_cap_of_a_subpartition_leaves_segments_to_the_others(make: MakeOutput) -> None:
    output = make(channels=2, segments=10, cap=3)
    assert output.write(0, bytes(100)) == 3 * SIZE
    assert output.pool.outstanding(0) == 3
    assert output.write(1, bytes(100)) == 3 * SIZE
    output.poll(0).recycle()
    assert output.wakes == 1
    assert output.write(0, bytes(100)) == SIZE


def test_a_reader_is_notified_of_data_when_the_subpartition_is_at_its_cap(make: MakeOutput) -> None:
    output = make(cap=2)
    notified: list[int] = []
    output.partition.subpartition(0).attach(lambda: notified.append(0))
    output.write(0, bytes(100))
    assert notified == [0]


def test_a_segment_that_comes_back_wakes_though_another_subpartition_is_at_its_cap(make: MakeOutput) -> None:
    output = make(channels=2, segments=4, cap=3)
    output.write(0, bytes(3 * SIZE))
    assert output.write(1, bytes(2 * SIZE)) == SIZE
    assert not output.pool.available
    output.poll(1).recycle()
    assert output.wakes == 1
    assert output.write(1, bytes(SIZE)) == SIZE


def test_a_segment_from_the_shared_pool_wakes_though_another_subpartition_is_at_its_cap(make: MakeOutput) -> None:
    """Channel 0 stands still, at its cap; channel 1 must not wait for it."""
    output = make(channels=2, segments=4, cap=3, total=5)
    other = output.network.create_local_pool("another task", required=2, maximum=2)
    output.write(0, bytes(3 * SIZE))
    assert output.write(1, bytes(SIZE)) == 0, "the rest belongs to the other task"
    other.destroy()
    assert output.wakes == 1
    assert output.write(1, bytes(SIZE)) == SIZE


def test_a_want_of_one_channel_outlives_the_luck_of_another(make: MakeOutput) -> None:
    """Channel 0 is at its cap and wants a segment; channel 1 finds one only at its second look."""
    output = make(channels=2, segments=4, cap=2)
    assert output.write(0, bytes(3 * SIZE)) == 2 * SIZE
    with patch.object(LocalBufferPool, "request_many", autospec=True, side_effect=[[], [request_one(output.pool, 1)]]):
        assert output.write(1, bytes(SIZE)) == SIZE
    output.poll(0).recycle()
    assert output.wakes == 1


def test_an_event_closes_the_open_segment_and_takes_none(make: MakeOutput) -> None:
    output = make()
    notified: list[int] = []
    output.partition.subpartition(0).attach(lambda: notified.append(0))
    output.write(0, b"12")
    output.partition.write_event(0, EndOfData())
    assert notified == [0], "an event is not left waiting"
    assert output.pool.in_use == 1
    data = output.poll(0)
    assert bytes(data.view) == b"12"
    data.recycle()
    assert output.partition.subpartition(0).is_available(False)


def test_after_the_last_event_the_subpartition_is_finished(make: MakeOutput) -> None:
    output = make()
    output.partition.write_event(0, EndOfData())
    output.partition.write_event(0, EndOfPartition())
    assert output.partition.subpartition(0).finished
    assert output.read(0) == bytes([0, 0, 0, 8, 1]) + bytes(4)


def test_writing_for_a_reader_that_left_goes_nowhere_and_costs_nothing(make: MakeOutput) -> None:
    output = make(segments=2)
    output.write(0, b"123")
    output.partition.subpartition(0).release()
    assert output.write(0, bytes(10 * SIZE)) == 10 * SIZE
    assert output.pool.in_use <= 1
    assert output.partition.is_consumed


def test_release_keeps_only_what_is_being_sent(make: MakeOutput) -> None:
    output = make(channels=2)
    output.write(0, bytes(3 * SIZE))
    output.write(1, b"12")
    sending = output.poll(0)
    output.partition.release()
    assert output.pool.in_use == 1
    assert output.partition.is_consumed
    sending.recycle()
    assert output.pool.in_use == 0


def test_it_says_how_long_its_queues_are(make: MakeOutput) -> None:
    output = make(channels=2)
    output.write(1, bytes(2 * SIZE + 1))
    assert [queue.queue_length for queue in output.partition.subpartitions] == [0, 3]
    assert not output.partition.is_consumed


def test_a_destroyed_pool_is_an_error_not_a_wait(make: MakeOutput) -> None:
    output = make()
    output.pool.destroy()
    with pytest.raises(ExchangeError, match="after its pool was destroyed"):
        output.write(0, b"1")
