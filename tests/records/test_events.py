"""Events as bytes and back; damage is an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.records.events import (
    Alignment,
    Announcement,
    CancelMarker,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Event,
    blocks,
    decode_event,
    encode_event,
    is_priority,
)

ID = st.integers(1, (1 << 63) - 1)
TIME = st.integers(-(1 << 63), (1 << 63) - 1)
BARRIER = st.builds(CheckpointBarrier, ID, TIME, st.sampled_from(Alignment), st.integers(0, (1 << 63) - 1))
TIMED = st.builds(CheckpointBarrier, ID, TIME, st.just(Alignment.TIMEOUT), st.integers(0, (1 << 63) - 1))
EVENT = st.one_of(
    BARRIER,
    st.builds(CancelMarker, ID),
    st.builds(Announcement, st.integers(0, (1 << 32) - 1), TIMED),
    st.builds(EndOfData, st.booleans()),
    st.just(EndOfPartition()),
)


@given(EVENT)
def test_an_event_comes_back(event: Event) -> None:
    body = encode_event(event)
    assert decode_event(body) == decode_event(memoryview(body)) == event


def test_the_bytes_are_those_documented() -> None:
    barrier = CheckpointBarrier(1, 2, Alignment.TIMEOUT, 3)
    body = "0000000000000001" + "0000000000000002" + "00" + "01" + "0000000000000003"
    assert encode_event(barrier).hex() == "00000001" + body
    assert encode_event(Announcement(4, barrier)).hex() == "00000006" + "00000004" + "00000001" + body
    assert encode_event(CancelMarker(5)).hex() == "00000004" + "0000000000000005"
    assert encode_event(EndOfData(drain=False)).hex() == "00000008" + "00"
    assert encode_event(EndOfPartition()).hex() == "00000000"


@given(EVENT, st.data())
def test_a_cut_or_longer_event_is_corruption(event: Event, data: st.DataObject) -> None:
    body = encode_event(event)
    cut = data.draw(st.integers(0, len(body) - 1))
    for damaged in (body[:cut], body + b"\x00"):
        with pytest.raises(ExchangeError, match="stream corrupted: unknown event"):
            decode_event(damaged)


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"\x00\x00\x00\x07", id="no such tag"),
        pytest.param(b"\xff\xff\xff\xff", id="a negative tag"),
        pytest.param(encode_event(CheckpointBarrier(0, 1)), id="a barrier of no checkpoint"),
        pytest.param(encode_event(CheckpointBarrier(-1, 1)), id="a barrier of a negative checkpoint"),
        pytest.param(encode_event(CheckpointBarrier(1, 1, Alignment.TIMEOUT, -1)), id="a timeout before the barrier"),
        pytest.param(encode_event(CheckpointBarrier(1, 1))[:-9] + b"\x04" + bytes(8), id="no such alignment"),
        pytest.param(encode_event(CancelMarker(0)), id="a cancel of no checkpoint"),
        pytest.param(encode_event(EndOfData())[:-1] + b"\x02", id="neither drain nor not"),
        pytest.param(encode_event(Announcement(1, CheckpointBarrier(1, 1))), id="an aligned barrier is not announced"),
        pytest.param(b"\x00\x00\x00\x06" + bytes(4) + encode_event(CancelMarker(1)), id="only barriers are announced"),
    ],
)
def test_what_no_writer_sends_is_corruption(damaged: bytes) -> None:
    with pytest.raises(ExchangeError, match="stream corrupted: unknown event"):
        decode_event(damaged)


@pytest.mark.parametrize(
    ("event", "overtakes", "stops"),
    [
        (CheckpointBarrier(1, 1), False, True),
        (CheckpointBarrier(1, 1, Alignment.TIMEOUT, 5), False, True),
        (CheckpointBarrier(1, 1, Alignment.UNALIGNED), True, False),
        (CheckpointBarrier(1, 1, Alignment.TIMEOUT, 5).as_priority(), True, False),
        (Announcement(1, CheckpointBarrier(1, 1, Alignment.TIMEOUT, 5)), True, False),
        (CheckpointBarrier(1, 1, Alignment.COUNTED), False, False),
        (CancelMarker(1), False, False),
        (EndOfData(), False, False),
        (EndOfPartition(), False, False),
    ],
)
def test_which_events_overtake_and_which_block_the_producer(event: Event, overtakes: bool, stops: bool) -> None:
    assert (is_priority(event), blocks(event)) == (overtakes, stops)


def test_a_barrier_that_turned_unaligned_is_the_same_barrier() -> None:
    barrier = CheckpointBarrier(7, 8, Alignment.TIMEOUT, 9).as_priority()
    assert (barrier.id, barrier.timestamp, barrier.alignment) == (7, 8, Alignment.UNALIGNED)
