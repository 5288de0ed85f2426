"""The frames of a data link, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.protocol.messages import (
    DATA_BUFFER,
    FRAME,
    MAGIC,
    MAX_CONTROL_FRAME,
    TO_CONSUMER,
    TO_PRODUCER,
    AckAllUserRecordsProcessed,
    AddCredit,
    BacklogAnnouncement,
    CancelPartitionRequest,
    CloseRequest,
    ErrorResponse,
    NewBufferSize,
    PartitionRequest,
    ResumeConsumption,
    ToConsumer,
    ToProducer,
    check_frame,
    encode,
    encode_buffer_response,
    parse_control,
)
from headgate.protocol.throttle_message import MOST_TASKS, Throttle, in_messages
from headgate.throttle.stage_signals import BackPressureStatus, JStormStop

NUMBER = st.integers(0, (1 << 32) - 1)
COUNT = st.integers(1, (1 << 32) - 1)
TASKS = st.lists(st.tuples(NUMBER, NUMBER), max_size=5).map(tuple)
MESSAGE = st.one_of(
    st.builds(PartitionRequest, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER),
    st.builds(CancelPartitionRequest, NUMBER),
    st.just(CloseRequest()),
    st.builds(AddCredit, COUNT, NUMBER),
    st.builds(ResumeConsumption, NUMBER),
    st.builds(AckAllUserRecordsProcessed, NUMBER),
    st.builds(BacklogAnnouncement, COUNT, NUMBER),
    st.builds(NewBufferSize, COUNT, NUMBER),
    st.builds(Throttle, st.builds(BackPressureStatus, NUMBER, NUMBER, TASKS, TASKS)),
    st.builds(Throttle, st.builds(JStormStop, NUMBER, NUMBER, st.tuples(NUMBER, NUMBER), st.booleans())),
    st.builds(ErrorResponse, st.text(max_size=50), st.none() | NUMBER),
    st.builds(ErrorResponse, st.text(max_size=50), NUMBER, st.booleans()),
)


@given(MESSAGE)
def test_every_message_comes_back_from_its_frame(message: ToProducer | ToConsumer) -> None:
    frame = encode(message)
    length, magic, number = FRAME.unpack_from(frame)
    check_frame(length, magic)
    assert length == len(frame)
    assert magic == MAGIC
    accepted = TO_CONSUMER if isinstance(message, ToConsumer) else TO_PRODUCER
    assert parse_control(number, frame[FRAME.size :], accepted) == message


def test_the_bytes_are_those_documented() -> None:
    head = "0badc0ffe"[1:]
    assert encode(AddCredit(3, 9)).hex() == "00000011" + head + "06" + "00000003" + "00000009"
    assert encode(ResumeConsumption(9)).hex() == "0000000d" + head + "07" + "00000009"
    assert encode(AckAllUserRecordsProcessed(9)).hex() == "0000000d" + head + "08" + "00000009"
    assert encode(BacklogAnnouncement(3, 9)).hex() == "00000011" + head + "09" + "00000003" + "00000009"
    assert encode(NewBufferSize(3, 9)).hex() == "00000011" + head + "0a" + "00000003" + "00000009"
    assert encode(CloseRequest()).hex() == "00000009" + head + "05"
    assert encode(CancelPartitionRequest(9)).hex() == "0000000d" + head + "04" + "00000009"
    assert encode(ErrorResponse("no")).hex() == "0000000c" + head + "01" + "00" + b"no".hex()
    assert encode(ErrorResponse("no", 9, not_found=True)).hex() == "00000010" + head + "01" + "0200000009" + b"no".hex()
    assert encode(ErrorResponse("no", 9)).hex() == "00000010" + head + "01" + "01" + "00000009" + b"no".hex()
    status = Throttle(BackPressureStatus(1, 2, full=((3, 4),), free=((5, 6),)))
    tasks = "00000003" + "00000004" + "00000005" + "00000006"
    assert encode(status).hex() == "00000024" + head + "0b" + "01" + "00000001" + "00000002" + "0001" + tasks
    stop = Throttle(JStormStop(1, 2, (3, 4), stops=True))
    assert encode(stop).hex() == "0000001b" + head + "0b" + "02" + "00000001" + "00000002" + tasks[:16] + "01"
    header = encode_buffer_response(receiver=1, sequence=2, backlog=3, data_type=DATA_BUFFER, size=5)
    assert header.hex() == "0000001f" + head + "00" + "00000001" + "00000002" + "00000003" + "01" + "00000005"


def test_every_message_has_a_number_of_its_own() -> None:
    assert {number: kind.__name__ for number, kind in TO_PRODUCER.items()} == {
        2: "PartitionRequest",
        4: "CancelPartitionRequest",
        5: "CloseRequest",
        6: "AddCredit",
        7: "ResumeConsumption",
        8: "AckAllUserRecordsProcessed",
        10: "NewBufferSize",
        11: "Throttle",
    }
    assert {number: kind.__name__ for number, kind in TO_CONSUMER.items()} == {
        1: "ErrorResponse",
        9: "BacklogAnnouncement",
    }
    assert set(TO_PRODUCER).isdisjoint(TO_CONSUMER)


@pytest.mark.parametrize("receiver", [None, 7])
def test_a_long_error_is_cut_to_a_frame_that_is_accepted(receiver: int | None) -> None:
    frame = encode(ErrorResponse("€" * MAX_CONTROL_FRAME, receiver))
    assert len(frame) <= MAX_CONTROL_FRAME
    parsed = ErrorResponse.parse(frame[FRAME.size :])
    assert parsed.receiver == receiver
    assert parsed.message.startswith("€€€")


@pytest.mark.parametrize(
    "kind",
    [
        PartitionRequest,
        CancelPartitionRequest,
        AddCredit,
        ResumeConsumption,
        AckAllUserRecordsProcessed,
        NewBufferSize,
        BacklogAnnouncement,
    ],
)
@pytest.mark.parametrize("size", [0, 1, 7, 9, 100])
def test_a_body_of_another_length_is_corruption(kind: type[ToProducer | ToConsumer], size: int) -> None:
    with pytest.raises(ExchangeError, match=f"stream corrupted: {kind.__name__} with {size} bytes"):
        parse_control(kind.id, bytes(size), {**TO_PRODUCER, **TO_CONSUMER})


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x00\x00"])
def test_an_error_without_its_receiver_is_corruption(body: bytes) -> None:
    with pytest.raises(ExchangeError, match="stream corrupted: ErrorResponse with"):
        parse_control(ErrorResponse.id, body, TO_CONSUMER)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "Throttle with 0 bytes"),
        ("03", "a throttle's signal of the unknown kind 3"),
        ("01" + "00" * 9, "Throttle with 10 bytes"),
        ("01" + "00" * 8 + "0001", "a status of 1 full tasks in 11 bytes"),
        ("01" + "00" * 8 + "0000" + "00" * 7, "a status of 0 full tasks in 18 bytes"),
        ("02" + "00" * 16, "Throttle with 17 bytes"),
        ("02" + "00" * 16 + "02", "a throttle's signal with the flag 2"),
        ("02" + "00" * 18, "Throttle with 19 bytes"),
    ],
)
def test_a_body_that_is_no_signal_is_corruption(body: str, says: str) -> None:
    with pytest.raises(ExchangeError, match=f"^stream corrupted: {says}"):
        parse_control(Throttle.id, bytes.fromhex(body), TO_PRODUCER)


@pytest.mark.parametrize(("full", "free"), [(0, 0), (3, 4), (MOST_TASKS + 1, 0), (10, 20_000), (20_000, 10)])
def test_a_long_status_goes_in_several_messages_that_are_accepted(full: int, free: int) -> None:
    tasks = [(1, number) for number in range(full + free)]
    status = BackPressureStatus(7, 9, full=tuple(tasks[:full]), free=tuple(tasks[full:]))
    frames = [encode(message) for message in in_messages(status)]
    assert max(map(len, frames)) <= MAX_CONTROL_FRAME
    parts = [Throttle.parse(frame[FRAME.size :]).signal for frame in frames]
    assert all(isinstance(part, BackPressureStatus) and (part.taskmanager, part.number) == (7, 9) for part in parts)
    assert [task for part in parts if isinstance(part, BackPressureStatus) for task in part.full] == tasks[:full]
    assert [task for part in parts if isinstance(part, BackPressureStatus) for task in part.free] == tasks[full:]
