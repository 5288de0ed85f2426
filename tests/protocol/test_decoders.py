"""Frames: however they are cut, what comes out is what went in; whatever comes in, only an ExchangeError comes out."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.memory.buffer import Buffer
from headgate.protocol.decoders import NO_MEMORY_YET, NoMemoryYet, RequestDecoder, ResponseDecoder
from headgate.protocol.handshake import (
    ANSWER_BYTES,
    DATA_LINK,
    HELLO_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    Credentials,
    Dialler,
    Listener,
)
from headgate.protocol.messages import (
    BUFFER_RESPONSE,
    COMPRESSED_BUFFER,
    DATA_BUFFER,
    EVENT_BUFFER,
    FRAME,
    MAGIC,
    MAX_CONTROL_FRAME,
    MAX_EVENT,
    MAX_RUN,
    AckAllUserRecordsProcessed,
    AddCredit,
    BacklogAnnouncement,
    BufferResponse,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    ToConsumer,
    ToProducer,
    encode,
    encode_buffer_response,
)
from headgate.protocol.sender import Sender, SubpartitionView
from headgate.protocol.throttle_message import Throttle
from headgate.records.elements import decode_element
from headgate.records.events import decode_event
from headgate.throttle.stage_signals import BackPressureStatus, JStormStop

SEGMENT = 24
NUMBER = st.integers(0, 2**32 - 1)
SMALL = st.integers(0, 3)
TASKS = st.lists(st.tuples(NUMBER, NUMBER), max_size=3).map(tuple)
REQUESTS = st.one_of(
    st.builds(PartitionRequest, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER),
    st.builds(CancelPartitionRequest, NUMBER),
    st.builds(CloseRequest),
    st.builds(AddCredit, st.integers(1, 2**32 - 1), NUMBER),
    st.builds(ResumeConsumption, NUMBER),
    st.builds(AckAllUserRecordsProcessed, NUMBER),
    st.builds(NewBufferSize, st.integers(1, 2**32 - 1), NUMBER),
    st.builds(Throttle, st.builds(BackPressureStatus, NUMBER, NUMBER, TASKS, TASKS)),
    st.builds(Throttle, st.builds(JStormStop, NUMBER, NUMBER, st.tuples(NUMBER, NUMBER), st.booleans())),
)
#: A payload of several segments, no two of its bytes alike where they are near each other.
RUN = st.builds(
    lambda count, first, missing: bytes((first + i) & 0xFF for i in range(count * SEGMENT - missing)),
    st.integers(1, MAX_RUN),
    st.integers(0, 255),
    st.sampled_from([0, 0, 1, SEGMENT - 1]),
)
#: (receiver, payload, is_event) or an error; full segments often, and runs.
RESPONSES = st.one_of(
    st.tuples(SMALL, RUN, st.just(False)),
    st.tuples(SMALL, st.binary(max_size=SEGMENT), st.booleans()),
    st.builds(ErrorResponse, st.text(max_size=20), st.one_of(st.none(), NUMBER)),
    st.builds(BacklogAnnouncement, st.integers(1, 2**32 - 1), NUMBER),
)
CUTS = st.lists(st.integers(1, 90), min_size=1, max_size=8)


class Segments:
    """Memory for the decoder: of what it is asked for it gives as many segments as are next in `gives`, over and over;
    0 is NO_MEMORY_YET. The receiver `without` has none."""

    def __init__(self, without: int = -1, gives: Sequence[int] = (MAX_RUN,)) -> None:
        self.without = without
        self.gives = itertools.cycle(gives)
        self.filling: list[memoryview] = []
        self.items: list[tuple[BufferResponse, bytes] | ToConsumer] = []

    def allocate(self, response: BufferResponse, count: int) -> list[memoryview] | NoMemoryYet | None:
        assert not response.is_event
        assert not self.filling, "asked for memory before the last was full"
        assert count == max(1, min(8, -(-response.size // SEGMENT))), f"{count} segments for {response.size} bytes"
        if response.receiver == self.without:
            return None
        given = min(count, next(self.gives))
        if not given:
            return NO_MEMORY_YET
        self.filling = [memoryview(bytearray(SEGMENT)) for _ in range(given)]
        return list(self.filling)

    def keep(self, item: tuple[BufferResponse, bytes] | ToConsumer) -> None:
        """What the decoder says has come; data with what is in the segments."""
        if isinstance(item, ToConsumer) or item[0].is_event:
            self.items.append(item)
            return
        response, body = item
        assert body == b""
        assert self.filling or response.receiver == self.without
        payload = b"".join(self.filling)[: response.size]
        assert len(payload) == response.size or not self.filling
        self.filling = []
        self.items.append((response, payload))


def read(decoder: ResponseDecoder, data: bytes, cuts: list[int]) -> list[tuple[BufferResponse, bytes] | ToConsumer]:
    """All that comes out when a socket delivers `data` in cuts of these sizes, over and over."""
    memory = decoder._memory
    assert isinstance(memory, Segments)
    position = turn = 0
    while position < len(data) or decoder.is_waiting:
        if decoder.is_waiting:
            assert decoder.buffers() == []
            for item in decoder.resume():
                memory.keep(item)
            continue
        chunk = data[position : position + cuts[turn % len(cuts)]]
        turn += 1
        done = 0
        for place in decoder.buffers():
            part = chunk[done : done + len(place)]
            place[: len(part)] = part
            done += len(part)
        position += done
        for item in decoder.received(done):
            memory.keep(item)
    return memory.items


def frames(responses: list[tuple[int, bytes, bool] | ToConsumer], first: int = 0) -> bytes:
    """The stream of them, each 100 numbers behind the last."""
    data = b""
    for number, response in enumerate(responses):
        if isinstance(response, ToConsumer):
            data += encode(response)
        else:
            receiver, payload, is_event = response
            kind = EVENT_BUFFER if is_event else DATA_BUFFER
            sequence = (first + 100 * number) & 0xFFFFFFFF
            data += encode_buffer_response(receiver, sequence, number + 1, kind, len(payload)) + payload
    return data


@settings(deadline=None, derandomize=True)
@given(messages=st.lists(REQUESTS, max_size=6), cuts=CUTS)
@example([PartitionRequest(1, 2, 3, 4, 5), ResumeConsumption(4), CancelPartitionRequest(4), CloseRequest()], [1])
def test_requests_survive_every_cut(messages: list[ToProducer], cuts: list[int]) -> None:
    data = b"".join(map(encode, messages))
    decoder, seen = RequestDecoder(), []
    position = turn = 0
    while position < len(data):
        step = cuts[turn % len(cuts)]
        seen += decoder.feed(data[position : position + step])
        position, turn = position + step, turn + 1
    assert seen == messages


@settings(deadline=None, derandomize=True)
@given(
    responses=st.lists(RESPONSES, max_size=12),
    cuts=CUTS,
    without=st.integers(-1, 3),
    gives=st.lists(st.integers(0, MAX_RUN), min_size=1, max_size=5).filter(any),
    first=st.sampled_from([0, 2**32 - 5]),
)
@example([(0, b"a" * SEGMENT, False)] * 12, [1], -1, [1], 0)
@example([(0, b"a" * SEGMENT, False), (1, b"b" * SEGMENT, False)] * 8, [10_000], -1, [MAX_RUN], 0)
@example([(0, bytes(range(8 * SEGMENT)), False)] * 2, [1], -1, [0, 3], 2**32 - 5)
def test_responses_survive_every_cut(
    responses: list[tuple[int, bytes, bool] | ToConsumer],
    cuts: list[int],
    without: int,
    gives: list[int],
    first: int,
) -> None:
    decoder = ResponseDecoder(Segments(without, gives), SEGMENT)
    items = read(decoder, frames(responses, first), cuts)
    for number, sent in enumerate(responses):
        if isinstance(sent, ToConsumer):
            assert items.pop(0) == sent
            continue
        receiver, payload, is_event = sent
        sequence = (first + 100 * number) & 0xFFFFFFFF
        while True:  # a run comes in as many parts as its memory does
            item = items.pop(0)
            assert not isinstance(item, ToConsumer)
            response, part = item
            size = response.size
            rest = 0 if is_event else -(-(len(payload) - size) // SEGMENT)
            assert response == BufferResponse(receiver, sequence, number + 1 + rest, is_event, size)
            if is_event or receiver != without:
                assert part == payload[:size]
            payload = payload[size:]
            if not payload:
                break
            assert size
            assert size % SEGMENT == 0, "only the end of a payload may be no full segment"
            sequence = (sequence + size // SEGMENT) & 0xFFFFFFFF
    assert items == []


@pytest.mark.parametrize("gives", [[MAX_RUN], [1], [2, 0, 1]], ids=["at once", "one by one", "by and by"])
def test_a_run_cut_at_every_byte_comes_whole(gives: list[int]) -> None:
    payload = bytes(range(4 * SEGMENT - 3))
    data = encode_buffer_response(1, 7, 5, DATA_BUFFER, len(payload)) + payload + encode(ErrorResponse("end"))
    for cut in range(1, len(data)):
        items = read(ResponseDecoder(Segments(gives=gives), SEGMENT), data, [cut, len(data)])
        assert items.pop() == ErrorResponse("end")
        parts = [item for item in items if not isinstance(item, ToConsumer)]
        assert b"".join(part for _, part in parts) == payload
        numbers = [response.sequence for response, _ in parts]
        assert numbers == [7] if gives == [MAX_RUN] else numbers[:2] == [7, 7 + gives[0]]
        behind = [
            4 - (number - 7) - -(-response.size // SEGMENT)
            for number, (response, _) in zip(numbers, parts, strict=True)
        ]
        assert [response.backlog for response, _ in parts] == [5 + segments for segments in behind]


def test_a_run_comes_in_parts_that_the_task_can_begin_with() -> None:
    payload = bytes(range(20)) * SEGMENT
    data = encode_buffer_response(1, 7, 5, DATA_BUFFER, len(payload)) + payload
    items = read(ResponseDecoder(Segments(), SEGMENT), data, [len(data)])
    parts = [item for item in items if not isinstance(item, ToConsumer)]
    assert [(response.sequence, len(part) // SEGMENT) for response, part in parts] == [(7, 8), (15, 8), (23, 4)]
    assert [response.backlog for response, _ in parts] == [5 + 12, 5 + 4, 5], "what is behind each of them"


def test_the_sequence_numbers_of_the_parts_of_a_run_wrap_around() -> None:
    data = encode_buffer_response(0, 2**32 - 1, 0, DATA_BUFFER, 3 * SEGMENT) + bytes(3 * SEGMENT)
    items = read(ResponseDecoder(Segments(gives=[1]), SEGMENT), data, [1000])
    assert [item[0].sequence for item in items if not isinstance(item, ToConsumer)] == [2**32 - 1, 0, 1]


def test_one_read_takes_a_run_and_what_is_behind_it() -> None:
    decoder = ResponseDecoder(Segments(), SEGMENT)
    read(decoder, encode_buffer_response(0, 0, 0, DATA_BUFFER, 4 * SEGMENT), [10_000])
    assert [len(place) for place in decoder.buffers()][:4] == [SEGMENT] * 4
    assert len(decoder.buffers()) == 5, "and the next header"


def test_nothing_behind_a_run_is_read_before_all_of_it_has_memory() -> None:
    decoder = ResponseDecoder(Segments(gives=[3]), SEGMENT)
    read(decoder, encode_buffer_response(0, 0, 0, DATA_BUFFER, 4 * SEGMENT), [10_000])
    assert [len(place) for place in decoder.buffers()] == [SEGMENT] * 3


def test_a_connection_that_ends_lets_go_of_the_memory_of_a_run() -> None:
    decoder = ResponseDecoder(Segments(gives=[3]), SEGMENT)
    read(decoder, encode_buffer_response(0, 0, 0, DATA_BUFFER, 4 * SEGMENT) + bytes(30), [10_000])
    decoder.close()
    assert [len(place) for place in decoder.buffers()] == [len(decoder._staging)]


# ---- what no peer of ours would send


def corrupt(data: bytes, damage: list[tuple[int, int]]) -> bytes:
    """`data` with some bytes set."""
    broken = bytearray(data)
    for position, value in damage:
        if broken:
            broken[position % len(broken)] = value
    return bytes(broken)


DAMAGE = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4)
#: Bodies of any bytes behind a header that is right, and bytes that are nothing at all.
NOISE = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda kind, body: FRAME.pack(FRAME.size + len(body), MAGIC, kind) + body,
        st.integers(0, 12),
        st.binary(max_size=40),
    ),
)


class NoView:
    """A subpartition with nothing in it."""

    buffer_size: int | None = None
    reported_backlog = 0

    def poll(self) -> None:
        return None

    def credit_changed(self, has_credit: bool) -> None: ...

    def is_available(self, has_credit: bool) -> bool:
        return False

    def resume(self) -> None: ...

    def acknowledge(self) -> None: ...

    def release(self) -> None: ...


def open_view(request: PartitionRequest, _notify: Callable[[], None]) -> SubpartitionView:
    if request.subpartition % 2:
        raise ExchangeError("no such subpartition")
    return NoView()  # type: ignore[return-value]


@settings(deadline=None, derandomize=True)
@given(messages=st.lists(REQUESTS, max_size=5), damage=DAMAGE, noise=NOISE, cut=st.integers(1, 60))
def test_a_producer_survives_any_bytes(
    messages: list[ToProducer], damage: list[tuple[int, int]], noise: bytes, cut: int
) -> None:
    sender = Sender(open_view, lambda receiver: None)
    sender.on_signal = lambda signal: None
    data = corrupt(b"".join(map(encode, messages)), damage) + noise
    try:
        for position in range(0, len(data), cut):
            sender.receive(data[position : position + cut])
            pieces, buffers = sender.next_frames(4)
            assert all(isinstance(piece, bytes) for piece in pieces)
            assert buffers == list[Buffer]()
    except ExchangeError:
        pass
    sender.release()


@settings(deadline=None, derandomize=True)
@given(responses=st.lists(RESPONSES, max_size=8), damage=DAMAGE, noise=NOISE, cuts=CUTS)
def test_a_consumer_survives_any_bytes(
    responses: list[tuple[int, bytes, bool] | ToConsumer],
    damage: list[tuple[int, int]],
    noise: bytes,
    cuts: list[int],
) -> None:
    decoder = ResponseDecoder(Segments(gives=[1, 0, MAX_RUN]), SEGMENT)
    try:
        for item in read(decoder, corrupt(frames(responses), damage) + noise, cuts):
            assert isinstance(item, ToConsumer) or len(item[1]) == item[0].size <= MAX_RUN * SEGMENT
    except ExchangeError:
        pass


@settings(deadline=None, derandomize=True)
@given(body=st.binary(max_size=12), tag=st.integers(0, 255))
def test_events_and_elements_survive_any_bytes(body: bytes, tag: int) -> None:
    for decode in (lambda: decode_event(body), lambda: decode_element(tag, body)):
        try:
            decode()
        except ExchangeError as error:
            if "corrupted" not in error.message:
                raise


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(struct.pack(">IIB", 9, 0x12345678, 5), "magic number 0x12345678", id="another protocol"),
        pytest.param(FRAME.pack(3, MAGIC, 5), "a frame of 3 bytes", id="shorter than its own header"),
        pytest.param(FRAME.pack(MAX_CONTROL_FRAME + 1, MAGIC, 6), "bytes", id="longer than any request"),
        pytest.param(FRAME.pack(9, MAGIC, 99), "unexpected message id 99", id="no such message"),
        pytest.param(encode(ErrorResponse("x")), "unexpected message id 1", id="a producer's message"),
        pytest.param(FRAME.pack(11, MAGIC, 6) + b"ab", "AddCredit with 2 bytes", id="a body that does not fit"),
        pytest.param(FRAME.pack(10, MAGIC, 5) + b"a", "CloseRequest with a body", id="a body where none belongs"),
        pytest.param(FRAME.pack(17, MAGIC, 6) + bytes(8), "AddCredit of 0", id="no credit at all"),
        pytest.param(FRAME.pack(17, MAGIC, 10) + bytes(8), "NewBufferSize of 0", id="buffers without room"),
    ],
)
def test_a_corrupted_request_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(ExchangeError, match=reason):
        list(RequestDecoder().feed(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(encode(CloseRequest()), "unexpected message id 5", id="a consumer's message"),
        pytest.param(
            encode_buffer_response(0, 0, 0, DATA_BUFFER, MAX_RUN * SEGMENT + 1),
            f"{MAX_RUN * SEGMENT + 1} bytes",
            id="too long a run",
        ),
        pytest.param(
            encode_buffer_response(0, 0, 0, COMPRESSED_BUFFER, SEGMENT + 1), "25 bytes", id="a run that is compressed"
        ),
        pytest.param(
            encode_buffer_response(0, 0, 0, EVENT_BUFFER, MAX_EVENT + 1), "1025 bytes", id="too large an event"
        ),
        pytest.param(
            FRAME.pack(BUFFER_RESPONSE.size + 1, MAGIC, 0) + struct.pack(">IIIBI", 0, 0, 0, DATA_BUFFER, SEGMENT),
            "24 bytes, type 1, in a frame of 27",
            id="a size that is not the frame's",
        ),
        pytest.param(encode_buffer_response(0, 0, 0, 7, 1), "type 7", id="no such type"),
        pytest.param(FRAME.pack(17, MAGIC, 9) + bytes(8), "BacklogAnnouncement of 0", id="an announcement of nothing"),
        pytest.param(
            FRAME.pack(MAX_CONTROL_FRAME + 1, MAGIC, 1), "control frame of 65537 bytes", id="an endless error"
        ),
    ],
)
def test_a_corrupted_response_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(ExchangeError, match=reason):
        read(ResponseDecoder(Segments(), SEGMENT), data, [1000])


def test_a_second_request_for_a_channel_ends_the_connection() -> None:
    sender = Sender(open_view, lambda receiver: None)
    request = encode(PartitionRequest(0, 0, 0, 7, 1))
    with pytest.raises(ExchangeError, match="a second request for channel 7"):
        sender.receive(request + request)


def test_more_credit_than_any_consumer_could_have_ends_the_connection() -> None:
    sender = Sender(open_view, lambda receiver: None)
    sender.receive(encode(PartitionRequest(0, 0, 0, 7, 1)))
    with pytest.raises(ExchangeError, match="impossible"):
        sender.receive(encode(AddCredit(1 << 31, 7)))


def test_a_request_for_what_is_not_there_is_answered() -> None:
    sender = Sender(open_view, lambda receiver: None)
    sender.receive(encode(PartitionRequest(0, 0, 1, 7, 1)))
    assert sender.next_frames(4) == ([encode(ErrorResponse("no such subpartition", 7))], [])


# ---- handshake

OURS = Credentials(b"j" * 16, 3, b"secret")


def shake(theirs: Credentials, kind: int = DATA_LINK) -> int:
    """Both sides, one after the other; returns the number the listener learns."""
    dialler = Dialler(theirs, kind, 5, b"n" * NONCE_BYTES)
    listener = Listener(OURS, DATA_LINK, b"m" * NONCE_BYTES)
    return listener.check(dialler.prove(listener.answer(dialler.hello)))


def test_peers_that_share_the_secret_meet() -> None:
    assert shake(OURS) == 5


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (Credentials(b"k" * 16, 3, b"secret"), "refused the connection: another job"),
        (Credentials(b"j" * 16, 2, b"secret"), "refused the connection: attempt 2, but the listener has 3"),
        (Credentials(b"j" * 16, 3, b"guess"), "does not know this job's secret"),
    ],
)
def test_others_are_refused_with_the_reason(theirs: Credentials, reason: str) -> None:
    with pytest.raises(ExchangeError, match=reason):
        shake(theirs)


def test_a_link_of_another_kind_is_refused() -> None:
    with pytest.raises(ExchangeError, match="wrong kind of link"):
        shake(OURS, kind=DATA_LINK + 1)


@settings(deadline=None, derandomize=True)
@given(hello=st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES), damage=DAMAGE, valid=st.booleans())
def test_a_listener_survives_any_hello(hello: bytes, damage: list[tuple[int, int]], valid: bool) -> None:
    if valid:
        hello = corrupt(Dialler(OURS, DATA_LINK, 5, b"n" * NONCE_BYTES).hello, damage)
    listener = Listener(OURS, DATA_LINK, b"m" * NONCE_BYTES)
    assert len(listener.answer(hello)) == ANSWER_BYTES
    with pytest.raises(ExchangeError, match="secret"):
        listener.check(b"x" * PROOF_BYTES)


@settings(deadline=None, derandomize=True)
@given(answer=st.binary(min_size=ANSWER_BYTES, max_size=ANSWER_BYTES))
def test_a_dialler_believes_no_made_up_answer(answer: bytes) -> None:
    with pytest.raises(ExchangeError):
        Dialler(OURS, DATA_LINK, 5, b"n" * NONCE_BYTES).prove(answer)


def test_a_proof_of_one_side_is_none_for_the_other() -> None:
    dialler = Dialler(OURS, DATA_LINK, 5, b"n" * NONCE_BYTES)
    listener = Listener(OURS, DATA_LINK, b"n" * NONCE_BYTES)
    answer = listener.answer(dialler.hello)
    with pytest.raises(ExchangeError, match="refused"):
        listener.check(answer[1 + NONCE_BYTES :])


def test_no_secret_is_printed() -> None:
    assert "secret" not in repr(OURS)
