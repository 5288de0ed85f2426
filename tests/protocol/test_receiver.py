"""The consumer's end of a connection: requests, coalesced credit, leave; where payloads go when channels have gone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headgate.errors import ExchangeError
from headgate.memory.segment import MemorySegment
from headgate.protocol.backoff import Backoff
from headgate.protocol.decoders import NO_MEMORY_YET, NoMemoryYet, RequestDecoder
from headgate.protocol.messages import (
    DATA_BUFFER,
    EVENT_BUFFER,
    AckAllUserRecordsProcessed,
    AddCredit,
    BacklogAnnouncement,
    BufferResponse,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    PartitionRequest,
    ToProducer,
    encode,
    encode_buffer_response,
)
from headgate.protocol.plain_tcp import PlainReceiver
from headgate.protocol.receiver import Receiver

SIZE = 16


class Channel:
    """A channel with `segments` segments that records what it is given."""

    def __init__(self, segments: int = 4) -> None:
        self.free = [MemorySegment(index, memoryview(bytearray(SIZE))) for index in range(segments)]
        self.all = list(self.free)
        self.released = False
        self.is_short = False  # gives what there is, as memory without credit does
        self.holds = False
        self.held: list[MemorySegment] = []
        self.unannounced = 0
        self.seen: list[object] = []

    def request(self, receiver: int) -> PartitionRequest:
        return PartitionRequest(1, 2, 3, receiver, len(self.free))

    def take_segments(self, count: int) -> list[MemorySegment] | NoMemoryYet | None:
        if self.released:
            return None
        if self.is_short:
            count = min(count, len(self.free))
        elif count > len(self.free):
            raise ExchangeError("without credit")
        taken, self.free = self.free[:count], self.free[count:]
        return taken or NO_MEMORY_YET

    def recycle(self, *segments: MemorySegment) -> None:
        self.free += segments

    def on_data(self, response: BufferResponse, segments: Sequence[MemorySegment]) -> None:
        self.seen.append((response.sequence, b"".join(segment.view for segment in segments)[: response.size]))
        if self.holds:
            self.held += segments
        else:
            self.recycle(*segments)

    def on_read(self, backlog: int) -> None:
        self.seen.append(f"backlog {backlog}")

    def on_backlog(self, backlog: int) -> None:
        self.seen.append(f"announced {backlog}")

    def on_event(self, response: BufferResponse, body: bytes) -> None:
        self.seen.append((response.sequence, "event", body))

    def on_error(self, error: ExchangeError) -> None:
        self.seen.append(error.message)

    def take_unannounced(self) -> int:
        credit, self.unannounced = self.unannounced, 0
        return credit


def data(receiver: int, sequence: int, content: bytes, backlog: int = 0) -> bytes:
    return encode_buffer_response(receiver, sequence, backlog, DATA_BUFFER, len(content)) + content


def event(receiver: int, sequence: int, body: bytes) -> bytes:
    return encode_buffer_response(receiver, sequence, 0, EVENT_BUFFER, len(body)) + body


class Consumer:
    def __init__(self, channels: int = 2) -> None:
        self.receiver = Receiver(SIZE)
        self.channels = [Channel() for _ in range(channels)]
        self.numbers = [self.receiver.request(channel) for channel in self.channels]

    def said(self) -> list[ToProducer]:
        return list(RequestDecoder().feed(self.receiver.data_to_send()))

    def arrive(self, stream: bytes, cut: int = 1 << 20) -> None:
        while stream:
            stream = stream[self.arrive_some(stream, cut) :]

    def arrive_some(self, stream: bytes, cut: int = 1 << 20) -> int:
        """What one read takes of `cut` bytes that are there; returns how many bytes that is."""
        count = 0
        for place in self.receiver.buffers():
            part = stream[count : count + min(len(place), cut - count)]
            place[: len(part)] = part
            count += len(part)
        self.receiver.received(count)
        self.receiver.notify_channels()
        return count

    def assert_whole(self) -> None:
        """Every segment is with its channel again."""
        for channel in self.channels:
            assert sorted(segment.index for segment in channel.free) == [0, 1, 2, 3]


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def test_a_partition_that_is_not_there_yet_is_asked_for_again_until_the_longest_wait_was_in_vain() -> None:
    receiver, channel = Receiver(SIZE, lambda: Backoff(1.0, 4.0)), Channel()
    consumer = Consumer(0)
    consumer.receiver = receiver
    receiver.request(channel)
    first = receiver.data_to_send()
    not_found = encode(ErrorResponse("not yet", 0, not_found=True))
    for wait in (1.0, 2.0, 4.0):
        consumer.arrive(not_found)
        assert receiver.take_retries() == [(0, wait)]
        assert receiver.data_to_send() == b""
        receiver.request_again(0)
        assert receiver.data_to_send() == first
        assert channel.seen == []
    consumer.arrive(not_found)
    assert receiver.take_retries() == []
    assert channel.seen == ["not yet"]
    receiver.cancel(0)
    receiver.data_to_send()
    receiver.request_again(0)
    assert receiver.data_to_send() == b"", "it has left"


def test_each_channel_asks_under_a_number_of_its_own(consumer: Consumer) -> None:
    assert consumer.numbers == [0, 1]
    assert consumer.said() == [PartitionRequest(1, 2, 3, 0, 4), PartitionRequest(1, 2, 3, 1, 4)]
    assert consumer.said() == []


@pytest.mark.parametrize("cut", [1, 3, 27, 1 << 20])
def test_buffers_and_events_reach_their_channels(consumer: Consumer, cut: int) -> None:
    full = bytes(range(SIZE))
    consumer.arrive(data(0, 0, b"ab") + data(1, 0, full, 5) + event(0, 1, b"end") + data(1, 1, b""), cut)
    assert [item for item in consumer.channels[0].seen if isinstance(item, tuple)] == [(0, b"ab"), (1, "event", b"end")]
    assert [item for item in consumer.channels[1].seen if isinstance(item, tuple)] == [(0, full), (1, b"")]
    consumer.receiver.fail()
    consumer.assert_whole()


@pytest.mark.parametrize("cut", [1, 5, SIZE, 100, 1 << 20])
@pytest.mark.parametrize("pattern", [[0], [0, 1], [0, 0, 1], [0, 1, 1, 0, 1]])
def test_long_streams_of_runs_in_any_turns(consumer: Consumer, cut: int, pattern: list[int]) -> None:
    stream, wanted, sequence = b"", [[], []], [0, 0]
    for turn in range(40):
        receiver, count = pattern[turn % len(pattern)], 1 + turn % 4
        content = bytes(turn + i for i in range(count * SIZE if turn % 11 else 3))
        stream += data(receiver, sequence[receiver], content)
        wanted[receiver].append((sequence[receiver], content))
        sequence[receiver] += count
    consumer.arrive(stream, cut)
    assert [[item for item in channel.seen if isinstance(item, tuple)] for channel in consumer.channels] == wanted
    consumer.receiver.fail()
    consumer.assert_whole()


@pytest.mark.parametrize("cut", [1, SIZE - 1, SIZE + 30, 1 << 20])
def test_a_run_that_there_is_no_memory_for_comes_in_parts(cut: int) -> None:
    consumer = Consumer()
    consumer.receiver = PlainReceiver(SIZE)
    channel = consumer.channels[0]
    consumer.receiver.request(channel)
    channel.is_short = channel.holds = True
    run = bytes(range(10 * SIZE))
    stream = data(0, 5, run, 3) + event(0, 15, b"end")
    while stream or consumer.receiver.is_stopped:
        if consumer.receiver.is_stopped:
            assert len(channel.held) == 4, "reading is stopped while there is memory"
            channel.held, channel.free = [], channel.held
            consumer.receiver.credit_available(0)
        else:
            stream = stream[consumer.arrive_some(stream, cut) :]
    parts = [item for item in channel.seen if isinstance(item, tuple)]
    assert parts.pop() == (15, "event", b"end")
    assert [number for number, _ in parts] == [5, 9, 13]
    assert b"".join(part for _, part in parts) == run


def test_the_newest_backlog_is_passed_on_once_per_read(consumer: Consumer) -> None:
    consumer.arrive(data(0, 0, b"a", 7) + data(0, 1, b"b", 6))
    assert consumer.channels[0].seen == [(0, b"a"), (1, b"b"), "backlog 6"]


def test_an_announcement_is_passed_on_after_the_backlog_of_the_data_before_it(consumer: Consumer) -> None:
    """Otherwise a channel without credit would keep the older backlog, and nothing would correct it."""
    consumer.arrive(data(0, 0, b"1", 0) + encode(BacklogAnnouncement(9, 0)))
    assert consumer.channels[0].seen == [(0, b"1"), "backlog 0", "announced 9"]


def test_credit_is_read_when_it_is_sent_and_goes_out_as_one(consumer: Consumer) -> None:
    consumer.said()
    consumer.channels[1].unannounced = 1
    consumer.receiver.credit_available(1)
    consumer.channels[1].unannounced += 4
    consumer.receiver.credit_available(1)
    assert consumer.said() == [AddCredit(5, 1)]
    consumer.receiver.credit_available(1)
    assert consumer.said() == [], "there is none"


def test_leave_is_a_cancel_and_the_last_one_closes(consumer: Consumer) -> None:
    consumer.said()
    consumer.channels[0].unannounced = 3
    consumer.receiver.credit_available(0)
    consumer.receiver.cancel(0)
    assert consumer.said() == [CancelPartitionRequest(0)], "a channel that left announces no credit"
    consumer.receiver.cancel(0)
    assert consumer.said() == []
    consumer.receiver.cancel(1)
    assert consumer.said() == [CancelPartitionRequest(1), CloseRequest()]


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
def test_what_still_comes_for_a_channel_that_left_is_passed_over(consumer: Consumer, cut: int) -> None:
    consumer.receiver.cancel(0)
    passed = data(0, 0, bytes(SIZE)) + event(0, 1, b"end")
    consumer.arrive(passed + data(1, 0, b"mine") + data(0, 2, bytes(3 * SIZE)) + data(0, 5, b"x"), cut)
    assert consumer.channels[0].seen == []
    assert (0, b"mine") in consumer.channels[1].seen


def test_what_still_comes_for_a_channel_without_memory_is_passed_over(consumer: Consumer) -> None:
    consumer.channels[0].released = True
    consumer.arrive(data(0, 0, bytes(3 * SIZE)) * 3 + data(1, 0, b"mine"), 9)
    assert consumer.channels[0].seen == []
    assert (0, b"mine") in consumer.channels[1].seen


@pytest.mark.parametrize("missing", [1, SIZE, 2 * SIZE + 1, 3 * SIZE])
def test_a_run_under_way_is_given_back_when_the_connection_fails(consumer: Consumer, missing: int) -> None:
    consumer.arrive(data(0, 0, bytes(3 * SIZE))[:-missing])
    assert len(consumer.channels[0].free) == 1
    assert consumer.receiver.fail() == consumer.channels
    consumer.assert_whole()
    assert consumer.receiver.fail() == [], "they are reported once"


def test_no_view_of_a_segment_outlives_the_connection(consumer: Consumer) -> None:
    consumer.arrive((data(0, 0, bytes(SIZE)) + data(0, 1, bytes(2 * SIZE)))[: -SIZE - 1])
    assert consumer.receiver.buffers()[0].obj is consumer.channels[0].all[1].view.obj
    consumer.receiver.fail()
    memory = {id(segment.view.obj) for segment in consumer.channels[0].all}
    assert memory.isdisjoint(id(place.obj) for place in consumer.receiver.buffers())


@pytest.mark.parametrize("missing", [1, SIZE, SIZE + 1, 3 * SIZE])
def test_a_run_under_way_when_its_channel_leaves_is_finished_and_given_back(consumer: Consumer, missing: int) -> None:
    frame = data(0, 0, bytes(3 * SIZE))
    consumer.arrive(frame[:-missing])
    consumer.receiver.cancel(0)
    assert len(consumer.channels[0].free) == 1, "its bytes are still being read"
    consumer.arrive(frame[-missing:] + data(1, 0, b"mine"))
    assert (0, b"mine") in consumer.channels[1].seen
    consumer.assert_whole()


@pytest.mark.parametrize("cut", [1, SIZE + 3, 1 << 20])
@pytest.mark.parametrize("leaves", ["the channel", "its memory"])
def test_what_is_left_of_a_run_is_passed_over_when_its_channel_leaves(cut: int, leaves: str) -> None:
    consumer = Consumer()
    channel, other = consumer.channels
    consumer.receiver = PlainReceiver(SIZE)
    for each in consumer.channels:
        consumer.receiver.request(each)
    channel.is_short = channel.holds = True
    stream = data(0, 0, bytes(range(6 * SIZE))) + data(1, 0, b"mine")
    while not consumer.receiver.is_stopped:
        stream = stream[consumer.arrive_some(stream, cut) :]
    if leaves == "its memory":
        channel.released = True
        consumer.receiver.credit_available(0)
    consumer.receiver.cancel(0)
    consumer.arrive(stream, cut)
    assert [item for item in channel.seen if isinstance(item, tuple)] == [(0, bytes(range(4 * SIZE)))]
    assert (0, b"mine") in other.seen
    assert not channel.free
    assert len(channel.held) == 4


def test_the_backlog_of_a_run_is_what_is_behind_it(consumer: Consumer) -> None:
    consumer.arrive(data(0, 0, bytes(3 * SIZE), 7))
    assert consumer.channels[0].seen == [(0, bytes(3 * SIZE)), "backlog 7"]


def test_only_channels_that_were_not_cancelled_get_a_failure(consumer: Consumer) -> None:
    consumer.receiver.cancel(0)
    assert consumer.receiver.fail() == [consumer.channels[1]]


def test_an_error_for_one_channel_leaves_the_others(consumer: Consumer) -> None:
    consumer.arrive(encode(ErrorResponse("no such partition", 1)) + data(0, 0, b"a") + encode(ErrorResponse("late", 9)))
    assert consumer.channels[1].seen == ["no such partition"]
    assert (0, b"a") in consumer.channels[0].seen


def test_an_error_for_no_channel_is_for_all(consumer: Consumer) -> None:
    with pytest.raises(ExchangeError, match="the producer closed the connection: broken"):
        consumer.arrive(encode(ErrorResponse("broken")))


def test_data_without_credit_end_the_connection(consumer: Consumer) -> None:
    with pytest.raises(ExchangeError, match="without credit"):
        consumer.arrive(data(0, 0, bytes(5 * SIZE)))


def test_it_counts_what_it_receives(consumer: Consumer) -> None:
    stream = data(0, 0, b"abc") + event(1, 0, b"end")
    consumer.arrive(stream, 4)
    assert consumer.receiver.bytes_received == len(stream)


def test_a_producer_that_does_not_read_its_messages_is_given_up(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.protocol.receiver._MAX_UNSENT", 5)
    word = AckAllUserRecordsProcessed(0)
    for _ in range(3):  # beside two requests
        consumer.receiver.send(word)
    with pytest.raises(ExchangeError, match="does not read: 5 messages wait for it"):
        consumer.receiver.send(word)
    assert consumer.said()[2:] == [word] * 3
    consumer.receiver.send(word)
