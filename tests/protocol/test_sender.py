"""The producer's end of a connection: whose turn it is, and what may be sent with which credit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from headgate.errors import ExchangeError, PartitionNotFound
from headgate.memory.buffer import Buffer, recycle_all
from headgate.memory.segment import MemorySegment
from headgate.protocol.credit import SenderCredit
from headgate.protocol.messages import (
    BUFFER_RESPONSE,
    COMPRESSED_BUFFER,
    DATA_BUFFER,
    EVENT_BUFFER,
    MAX_RUN,
    AckAllUserRecordsProcessed,
    AddCredit,
    BacklogAnnouncement,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    ToProducer,
    encode,
)
from headgate.protocol.sender import Credit, PolledBuffer, Sender
from headgate.protocol.throttle_message import StageSignal, Throttle
from headgate.throttle.stage_signals import BackPressureStatus, JStormStop

EVENT = b"event"
BARRIER = b"barrier"
EVENTS = (EVENT, BARRIER)
SEGMENT = 4
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 4


def run(letters: str) -> bytes:
    """A full segment for each letter."""
    return b"".join(letter.encode() * SEGMENT for letter in letters)


class View:
    """A subpartition of buffers that a test has put into it; EVENT is an event, and BARRIER one that blocks. What is
    longer than a segment is in a run of them."""

    buffer_size: int | None = None
    writer_rests = False

    def __init__(self) -> None:
        self.queue: deque[Buffer] = deque()
        self.sequence = 0
        self.released = 0
        self.blocked = False
        self.acknowledged = 0
        self.is_whole: list[bool] = []
        self.credit: Credit | None = None
        self.lent = 0

    def put(self, *contents: bytes) -> None:
        self.queue.extend(map(self._buffer, contents))

    def _buffer(self, content: bytes) -> Buffer:
        if content in EVENTS:
            return Buffer.of_bytes(content)
        count = max(1, -(-len(content) // SEGMENT))
        self.lent += count
        segments = [
            MemorySegment(number, memoryview(bytearray(content[number * SEGMENT :][:SEGMENT].ljust(SEGMENT, b"."))))
            for number in range(count)
        ]
        return Buffer(segments, 0, len(content), self._back)

    def _back(self, *segments: MemorySegment) -> None:
        self.lent -= len(segments)

    def credit_changed(self, is_whole: bool) -> None:
        self.is_whole.append(is_whole)

    def is_available(self, has_credit: bool) -> bool:
        return not self.blocked and bool(self.queue) and (has_credit or is_event(self.queue[0]))

    @property
    def reported_backlog(self) -> int:
        return 0 if self.blocked else sum(len(buffer.segments) for buffer in self.queue if not is_event(buffer))

    def resume(self) -> None:
        assert self.blocked
        self.blocked = False

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def poll(self, limit: int = 1) -> list[PolledBuffer]:
        assert limit > 0
        polled: list[PolledBuffer] = []
        while self.queue and limit > 0:
            buffer = self.queue.popleft()
            if len(buffer.segments) > limit:
                buffer, rest = buffer.split(limit)
                self.queue.appendleft(rest)
            limit -= len(buffer.segments)
            self.blocked = is_event(buffer) and bytes(buffer.view) == BARRIER
            following = is_event(self.queue[0]) if self.queue and not self.blocked else None
            polled.append(PolledBuffer(buffer, is_event(buffer), self.reported_backlog, self.sequence, following))
            self.sequence += len(buffer.segments)
            if is_event(buffer) or following is not False:
                break
        return polled

    def release(self) -> None:
        self.released += 1


def is_event(buffer: Buffer) -> bool:
    return buffer.segments[0].index < 0


@dataclass(frozen=True)
class Frame:
    """One BufferResponse."""

    subpartition: int
    content: bytes
    sequence: int
    backlog: int


class Producer:
    """A sender with a view for each of the subpartitions 0 to 9, requested as receiver 10 to 19."""

    def __init__(self) -> None:
        self.views = [View() for _ in range(10)]
        self.listeners: dict[int, Callable[[], None]] = {}
        self.posted: list[int] = []
        self.sender = Sender(self._open, self.posted.append)

    def _open(self, request: PartitionRequest, listener: Callable[[], None]) -> View:
        if request.subpartition >= len(self.views):
            raise ExchangeError(f"there is no partition {request.subpartition} here")
        self.listeners[request.subpartition] = listener
        return self.views[request.subpartition]

    def hear(self, *messages: ToProducer) -> None:
        self.sender.receive(b"".join(encode(message) for message in messages))

    def request(self, subpartition: int, credit: int) -> None:
        self.hear(PartitionRequest(0, 0, subpartition, 10 + subpartition, credit))

    def put(self, subpartition: int, *contents: bytes) -> None:
        self.views[subpartition].put(*contents)
        self.sender.data_available(10 + subpartition)

    def send(self, room: int = 100) -> list[tuple[int, bytes]]:
        """(subpartition, content) of the frames that go next."""
        return [(frame.subpartition, frame.content) for frame in self.frames(room)]

    def frames(self, room: int = 100) -> list[Frame]:
        """What goes next; checks that headers and contents belong together."""
        pieces, buffers = self.sender.next_frames(room)
        frames = []
        rest = deque(pieces)
        while rest:
            header = rest.popleft()
            assert isinstance(header, bytes)
            if header[8] == BacklogAnnouncement.id:
                continue
            length, _, _, receiver, sequence, backlog, kind, size = BUFFER_RESPONSE.unpack(header)
            content = b""
            while len(content) < size:
                content += bytes(rest.popleft())  # type: ignore[arg-type]
            assert length == BUFFER_RESPONSE.size + size
            assert len(content) == size
            assert (kind == EVENT_BUFFER) == (content in EVENTS)
            frames.append(Frame(receiver - 10, content, sequence, backlog))
        assert sum(len(frame.content) for frame in frames) == sum(buffer.size for buffer in buffers)
        recycle_all(buffers)
        return frames

    def said(self) -> list[bytes]:
        """Control frames that go next, when no buffer does."""
        pieces, buffers = self.sender.next_frames(100)
        assert not buffers
        return [bytes(piece) for piece in pieces]  # type: ignore[arg-type]


@pytest.fixture
def producer() -> Producer:
    return Producer()


def test_readers_have_a_few_segments_each_in_turn(producer: Producer) -> None:
    for subpartition in range(3):
        producer.request(subpartition, 100)
    producer.put(0, run(LETTERS[:20]))
    producer.put(1, b"d")
    producer.put(2, *[run(letter) for letter in LETTERS[:9]])
    assert producer.send() == [
        (0, run("abcdefgh")),
        (1, b"d"),
        (2, run("abcdefgh")),
        (0, run("ijklmnop")),
        (2, run("i")),
        (0, run("qrst")),
    ]
    assert not producer.sender.has_output
    assert [view.lent for view in producer.views[:3]] == [0, 0, 0]


def test_a_turn_is_as_long_for_small_buffers(producer: Producer) -> None:
    producer.request(0, 100)
    producer.request(1, 100)
    producer.put(0, *[b"a"] * 12)
    producer.put(1, *[b"x"] * 3)
    assert [number for number, _ in producer.send()] == [0] * 8 + [1] * 3 + [0] * 4


def test_turns_continue_over_several_writes(producer: Producer) -> None:
    producer.request(0, 100)
    producer.request(1, 100)
    producer.put(0, run(LETTERS[:20]))
    producer.put(1, run(LETTERS[:10]))
    assert [producer.send(1) for _ in range(4)] == [
        [(0, run("abcdefgh"))],
        [(1, run("abcdefgh"))],
        [(0, run("ijklmnop"))],
        [(1, run("ij"))],
    ]
    assert producer.send(1) == [(0, run("qrst"))]
    assert not producer.sender.has_output


@pytest.mark.parametrize("contents", [[b"a", b"b", b"c", b"d"], [run("abcd")], [run("ab"), run("cd")]], ids=len)
def test_a_reader_that_is_alone_has_all_turns_up_to_its_credit(producer: Producer, contents: list[bytes]) -> None:
    producer.request(0, 3)
    producer.put(0, *contents)
    assert b"".join(content for _, content in producer.send()) == b"".join(contents)[: -len(contents[-1][-4:])]
    assert producer.send() == []
    assert not producer.sender.has_output
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, contents[-1][-4:])]
    assert producer.views[0].lent == 0


def test_a_write_ends_with_the_turn_that_takes_up_its_room(producer: Producer) -> None:
    producer.request(0, 200)
    producer.put(0, *[b"x"] * 4, run(LETTERS[:MAX_RUN]))
    assert producer.send(3) == [*[(0, b"x")] * 4, (0, run(LETTERS[:4]))], "a turn of eight is not cut short for it"
    assert producer.send(MAX_RUN) == [(0, run(LETTERS[4:MAX_RUN]))]
    assert producer.send(3) == []


# ---- runs


def test_full_buffers_and_what_follows_them_are_one_frame(producer: Producer) -> None:
    producer.request(0, 100)
    producer.put(0, run("a"), run("bcd"), run("e"), b"f", b"g", run("hi") + b"x", run("j"), EVENT, run("k"), run("l"))
    assert producer.frames() == [
        Frame(0, run("abcde") + b"f", 0, 7),
        Frame(0, b"g", 6, 6),
        Frame(0, run("hi") + b"x", 7, 3),
        Frame(0, run("j"), 10, 2),
        Frame(0, EVENT, 11, 2),
        Frame(0, run("kl"), 12, 0),
    ]
    size = 10 * SEGMENT + 3 + len(EVENT)
    assert producer.sender.bytes_sent == size
    assert producer.views[0].lent == 0


def test_an_empty_buffer_is_a_frame_of_its_own_also_behind_a_full_one(producer: Producer) -> None:
    """Or the consumer could not count it: it has no bytes, and yet a number, and takes a credit."""
    producer.request(0, 100)
    producer.put(0, run("ab"), b"", run("c"))
    assert producer.frames() == [Frame(0, run("ab"), 0, 2), Frame(0, b"", 2, 1), Frame(0, run("c"), 3, 0)]


def test_a_frame_is_no_longer_than_a_consumer_takes(producer: Producer) -> None:
    producer.request(0, 400)
    content = LETTERS[: MAX_RUN // 2] + LETTERS[:MAX_RUN] + LETTERS[: MAX_RUN // 2 + 1]
    producer.put(0, run(content[:20]), run(content[20:90]), run(content[90:]))
    contents = [frame.content for frame in producer.frames(200)]
    assert b"".join(contents) == run(content)
    assert [len(content) // SEGMENT for content in contents] == [MAX_RUN, MAX_RUN, 1]


def test_a_reader_that_is_alone_sends_in_one_frame_what_its_credit_pays_for(producer: Producer) -> None:
    producer.request(0, 50)
    producer.put(0, run(LETTERS[:60]))
    assert [len(frame.content) // SEGMENT for frame in producer.frames()] == [50]


def test_one_write_is_one_run_unless_more_is_asked_for(producer: Producer) -> None:
    producer.request(0, 2 * MAX_RUN)
    producer.put(0, run(LETTERS))
    pieces, buffers = producer.sender.next_frames()
    assert len(pieces) == 1 + MAX_RUN
    assert sum(len(buffer.segments) for buffer in buffers) == MAX_RUN
    recycle_all(buffers)


def test_a_compressed_buffer_is_a_frame_of_its_own(producer: Producer) -> None:
    producer.request(0, 100)
    producer.put(0, run("a"), run("b"), run("c"), run("d"))
    producer.views[0].queue[1].is_compressed = True
    pieces, buffers = producer.sender.next_frames()
    headers = [BUFFER_RESPONSE.unpack(piece) for piece in pieces if isinstance(piece, bytes)]
    assert [(header[6], header[7]) for header in headers] == [
        (DATA_BUFFER, SEGMENT),
        (COMPRESSED_BUFFER, SEGMENT),
        (DATA_BUFFER, 2 * SEGMENT),
    ]
    recycle_all(buffers)


def test_a_run_costs_a_credit_for_each_segment(producer: Producer) -> None:
    producer.request(0, 5)
    producer.put(0, run("abc"))
    assert producer.send() == [(0, run("abc"))]
    producer.put(0, run("defghi"))
    assert producer.frames() == [Frame(0, run("de"), 3, 4)]
    producer.hear(AddCredit(3, 10))
    assert producer.frames() == [Frame(0, run("fgh"), 5, 1)]
    producer.hear(AddCredit(3, 10))
    assert producer.frames() == [Frame(0, run("i"), 8, 0)]


def test_a_lost_connection_between_the_parts_of_a_run_keeps_no_segment(producer: Producer) -> None:
    producer.request(0, 2)
    producer.put(0, run("abcd"))
    pieces, buffers = producer.sender.next_frames()
    assert len(pieces) == 3
    assert producer.views[0].lent == 4
    recycle_all(buffers)
    assert producer.views[0].lent == 2
    recycle_all(producer.views[0].queue)
    assert producer.views[0].lent == 0


# ---- credit and events


def test_without_credit_no_data_are_sent(producer: Producer) -> None:
    producer.request(0, 0)
    producer.put(0, b"a", b"b")
    assert producer.send() == []
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, b"a")]
    producer.sender.data_available(10)
    assert producer.send() == []
    producer.hear(AddCredit(5, 10))
    assert producer.send() == [(0, b"b")]


def test_credit_of_one_channel_is_none_for_another(producer: Producer) -> None:
    producer.request(0, 0)
    producer.request(1, 5)
    producer.put(0, b"a")
    producer.put(1, b"b")
    assert producer.send() == [(1, b"b")]


def test_events_need_no_credit_and_cost_none(producer: Producer) -> None:
    producer.request(0, 0)
    producer.put(0, EVENT, EVENT)
    assert producer.send() == [(0, EVENT), (0, EVENT)]
    producer.hear(AddCredit(1, 10))
    producer.put(0, EVENT, b"a", EVENT, b"b")
    assert producer.send() == [(0, EVENT), (0, b"a"), (0, EVENT)]


def test_a_barrier_needs_no_credit_and_stops_the_channel_until_the_consumer_asks(producer: Producer) -> None:
    producer.request(0, 3)
    producer.request(1, 3)
    producer.put(0, b"a", BARRIER, b"b")
    producer.put(1, b"x")
    assert producer.send() == [(0, b"a"), (1, b"x"), (0, BARRIER)]
    producer.sender.data_available(10)
    producer.put(1, b"y")
    assert producer.send() == [(1, b"y")], "only its own channel waits"
    producer.hear(ResumeConsumption(10))
    assert producer.send() == [(0, b"b")]


def test_credit_of_a_blocked_channel_counts_when_it_resumes(producer: Producer) -> None:
    producer.request(0, 1)
    producer.put(0, b"a", BARRIER, b"b", b"c", b"d")
    assert producer.send() == [(0, b"a"), (0, BARRIER)]
    producer.hear(AddCredit(2, 10))
    assert producer.send() == []
    producer.hear(ResumeConsumption(10))
    assert producer.send() == [(0, b"b"), (0, b"c")]


def test_a_channel_without_exclusive_buffers_gets_a_backlog_announcement(producer: Producer) -> None:
    producer.request(0, 0)
    producer.put(0, b"a", b"b", EVENT)
    assert producer.said() == [encode(BacklogAnnouncement(2, 10))]
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, b"a")], "the backlog travels with the buffer from here on"
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, b"b"), (0, EVENT)]
    producer.put(0, EVENT)
    assert producer.send() == [(0, EVENT)], "events are never announced"


def test_a_channel_with_exclusive_buffers_gets_its_backlog_with_them(producer: Producer) -> None:
    producer.request(0, 1)
    producer.put(0, b"a", b"b")
    assert producer.send() == [(0, b"a")]
    producer.put(0, b"c")
    assert producer.said() == []


def test_credit_for_buffers_given_up_during_a_block_is_forgotten(producer: Producer) -> None:
    producer.request(0, 0)
    producer.put(0, b"a")
    producer.said()
    producer.hear(AddCredit(3, 10))
    producer.put(0, BARRIER, b"b")
    assert producer.send() == [(0, b"a"), (0, BARRIER)]
    producer.hear(ResumeConsumption(10))
    assert producer.said() == [encode(BacklogAnnouncement(1, 10))]
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, b"b")]


def test_a_consumer_acknowledges_and_chooses_its_buffer_size(producer: Producer) -> None:
    producer.request(0, 1)
    producer.hear(AckAllUserRecordsProcessed(10), NewBufferSize(512, 10))
    assert producer.views[0].acknowledged == 1
    assert producer.views[0].buffer_size == 512


def test_messages_about_a_cancelled_channel_are_ignored(producer: Producer) -> None:
    producer.hear(ResumeConsumption(10), AckAllUserRecordsProcessed(10), NewBufferSize(512, 10))
    assert producer.said() == []


def test_an_event_waits_for_the_data_before_it(producer: Producer) -> None:
    producer.request(0, 1)
    producer.put(0, b"a", b"b", EVENT)
    assert producer.send() == [(0, b"a")]
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, b"b"), (0, EVENT)]


def test_the_backlog_and_the_sequence_travel_with_each_buffer(producer: Producer) -> None:
    producer.request(0, 10)
    producer.put(0, b"a", EVENT, b"b")
    pieces, buffers = producer.sender.next_frames(100)
    headers = [BUFFER_RESPONSE.unpack(bytes(piece)) for piece in pieces[::2]]  # type: ignore[arg-type]
    assert [(sequence, backlog) for _, _, _, _, sequence, backlog, _, _ in headers] == [(0, 1), (1, 1), (2, 0)]
    for buffer in buffers:
        buffer.recycle()


def test_an_empty_buffer_is_a_header_alone(producer: Producer) -> None:
    producer.request(0, 10)
    producer.put(0, b"")
    assert producer.send() == [(0, b"")]


def test_contents_are_not_copied(producer: Producer) -> None:
    producer.request(0, 10)
    producer.put(0, b"abc", run("de"))
    pieces, buffers = producer.sender.next_frames(100)
    segments = [segment for buffer in buffers for segment in buffer.segments]
    sent = [piece for piece in pieces if not isinstance(piece, bytes)]
    assert len(sent) == 3
    for piece, segment in zip(sent, segments, strict=True):
        assert isinstance(piece, memoryview)
        assert piece.obj is segment.view.obj
    recycle_all(buffers)


def test_what_is_there_at_the_request_is_sent_without_another_word(producer: Producer) -> None:
    producer.views[0].put(b"a")
    producer.request(0, 1)
    assert producer.send() == [(0, b"a")]


def test_a_subpartition_notifies_from_any_thread_by_posting_its_receiver(producer: Producer) -> None:
    producer.request(3, 1)
    producer.listeners[3]()
    assert producer.posted == [13]


def test_a_word_too_many_sends_nothing_twice(producer: Producer) -> None:
    producer.request(0, 5)
    producer.put(0, b"a")
    producer.sender.data_available(10)
    producer.hear(AddCredit(1, 10))
    assert producer.send() == [(0, b"a")]
    producer.sender.data_available(10)
    producer.sender.data_available(99)
    assert producer.send() == []
    assert not producer.sender.has_output


def test_after_a_cancel_nothing_is_sent_and_the_view_is_let_go(producer: Producer) -> None:
    producer.request(0, 5)
    producer.request(1, 5)
    producer.put(0, b"a")
    producer.put(1, b"b")
    producer.hear(CancelPartitionRequest(10))
    assert producer.views[0].released == 1
    assert producer.send() == [(1, b"b")]
    producer.hear(CancelPartitionRequest(10), AddCredit(3, 10))
    assert producer.views[0].released == 1
    assert producer.send() == []


def test_a_number_may_be_used_again_after_a_cancel(producer: Producer) -> None:
    producer.request(0, 5)
    producer.put(0, b"old")
    producer.hear(CancelPartitionRequest(10), PartitionRequest(0, 0, 1, 10, 5))
    producer.views[1].put(b"new")
    producer.sender.data_available(10)
    assert [content for _, content in producer.send()] == [b"new"]


def test_what_is_not_there_is_answered_before_any_buffer(producer: Producer) -> None:
    producer.request(0, 5)
    producer.put(0, b"a")
    producer.hear(PartitionRequest(0, 0, 99, 7, 1))
    pieces, buffers = producer.sender.next_frames(100)
    assert pieces[0] == encode(ErrorResponse("there is no partition 99 here", 7))
    assert len(pieces) == 3
    assert len(buffers) == 1
    buffers[0].recycle()


def test_what_may_be_there_later_is_answered_so(producer: Producer) -> None:
    def open_later(_request: PartitionRequest, _listener: Callable[[], None]) -> View:
        raise PartitionNotFound("not yet")

    producer.sender = Sender(open_later, producer.posted.append)
    producer.request(0, 5)
    assert producer.said() == [encode(ErrorResponse("not yet", 10, not_found=True))]


def test_a_consumer_that_asks_without_end_and_reads_nothing_is_refused(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.protocol.sender._MAX_ANSWERS", 3)
    for _ in range(3):
        producer.hear(PartitionRequest(0, 0, 99, 7, 1))
    with pytest.raises(ExchangeError, match="has not read 3 answers, but also requests channel"):
        producer.hear(PartitionRequest(0, 0, 99, 7, 1))
    assert len(producer.said()) == 3
    producer.hear(PartitionRequest(0, 0, 99, 7, 1))


def test_the_consumers_last_word_closes(producer: Producer) -> None:
    assert not producer.sender.closed
    producer.hear(CloseRequest())
    assert producer.sender.closed


def test_release_lets_go_of_every_view_once(producer: Producer) -> None:
    producer.request(0, 5)
    producer.request(1, 5)
    producer.put(0, b"a")
    producer.sender.release()
    producer.sender.release()
    assert [view.released for view in producer.views[:3]] == [1, 1, 0]
    assert producer.send() == []
    assert not producer.sender.has_output


def test_an_impossible_credit_opens_no_view(producer: Producer) -> None:
    with pytest.raises(ExchangeError, match="impossible"):
        producer.request(0, 1 << 31)
    assert producer.listeners == {}


def test_it_counts_what_it_sends(producer: Producer) -> None:
    producer.request(0, 5)
    producer.put(0, b"abc", EVENT)
    producer.send()
    assert producer.sender.bytes_sent == 3 + len(EVENT)


def test_a_view_is_notified_when_credit_is_spent_and_when_all_of_it_is_back() -> None:
    producer = Producer()
    producer.request(0, 2)
    producer.put(0, b"a")
    producer.sender.next_frames(16)
    assert producer.views[0].is_whole == [False], "one of two buffers"
    producer.put(0, b"b", EVENT)
    producer.sender.next_frames(16)
    producer.hear(AddCredit(1, 10))
    assert producer.views[0].is_whole == [False], "the other one is not consumed yet"
    producer.hear(AddCredit(1, 10), AddCredit(1, 10))
    assert producer.views[0].is_whole == [False, True]


def test_a_view_whose_channel_gets_credit_for_a_backlog_only_is_not_notified() -> None:
    producer = Producer()
    producer.request(0, 0)
    producer.put(0, b"a")
    producer.hear(AddCredit(1, 10))
    producer.sender.next_frames(16)
    assert producer.views[0].is_whole == []


class Clocked(Producer):
    """A producer whose waits for credit are measured, by the clock `now`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sender = Sender(self._open, self.posted.append, lambda credit: SenderCredit(credit, lambda: self.now))

    def waited(self, subpartition: int = 0) -> float:
        credit = self.views[subpartition].credit
        assert credit is not None
        return credit.waited_s


def test_data_wait_from_the_last_credit_to_the_next() -> None:
    producer = Clocked()
    producer.request(0, 1)
    producer.put(0, b"a", b"b")
    producer.now = 1
    assert producer.waited() == 0, "there is credit"
    producer.send()
    producer.now = 3
    assert producer.waited() == 2, "an open wait counts until now"
    producer.hear(AddCredit(1, 10))
    producer.now = 7
    assert producer.waited() == 2
    producer.send()
    producer.now = 9
    assert producer.waited() == 2, "no credit, and no data"


def test_data_that_come_when_the_credit_is_spent_wait_from_then_on() -> None:
    producer = Clocked()
    producer.request(0, 1)
    producer.put(0, b"a")
    producer.send()
    producer.now = 5
    producer.put(0, b"b")
    producer.now = 6
    assert producer.waited() == 1


def test_a_channel_without_initial_credit_waits_when_it_has_data() -> None:
    producer = Clocked()
    producer.views[0].put(b"a")
    producer.request(0, 0)
    producer.now = 2
    assert producer.waited() == 2


def test_data_behind_a_barrier_do_not_wait_for_credit() -> None:
    producer = Clocked()
    producer.request(0, 1)
    producer.put(0, b"a", BARRIER, b"b")
    producer.send()
    producer.now = 4
    assert producer.waited() == 0
    producer.hear(ResumeConsumption(10))
    producer.now = 5
    assert producer.waited() == 1


def test_a_channel_that_leaves_waits_no_more() -> None:
    producer = Clocked()
    producer.request(0, 1)
    producer.put(0, b"a", b"b")
    producer.send()
    producer.now = 1
    producer.views[0].queue.clear()  # what a release does
    producer.hear(CancelPartitionRequest(10))
    producer.now = 9
    assert producer.waited() == 1


def test_all_credit_that_was_granted_is_counted() -> None:
    producer = Clocked()
    producer.request(0, 2)
    producer.put(0, b"a", b"b")
    producer.send()
    producer.hear(AddCredit(3, 10), AddCredit(1, 10))
    credit = producer.views[0].credit
    assert credit is not None
    assert (credit.granted, credit.available) == (6, 4)


# ---- throttles


STOP = Throttle(JStormStop(0, 1, (2, 3), stops=True))


def test_a_signal_goes_to_the_throttle_of_the_job() -> None:
    producer, signals = Producer(), list[StageSignal]()
    producer.sender.on_signal = signals.append
    producer.hear(STOP, Throttle(BackPressureStatus(1, 1, full=((2, 3),), free=())))
    assert signals == [STOP.signal, BackPressureStatus(1, 1, full=((2, 3),), free=())]


def test_a_job_without_a_throttle_accepts_no_signal() -> None:
    with pytest.raises(ExchangeError, match=r"signal \(JStormStop\) to a job without its throttle"):
        Producer().hear(STOP)
