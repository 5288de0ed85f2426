"""Small stream elements, as bytes and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.records.elements import (
    MAX_TIME,
    MIN_TIME,
    Anchor,
    LatencyMarker,
    Tag,
    WatermarkElement,
    WatermarkStatus,
    decode_element,
    encode_element,
)


@given(st.integers(MIN_TIME, MAX_TIME))
def test_a_watermark_of_any_time_comes_back(time: int) -> None:
    tag, body = encode_element(WatermarkElement(time))
    assert tag is Tag.WATERMARK
    assert decode_element(tag, body) == WatermarkElement(time)


@pytest.mark.parametrize("active", [True, False])
def test_a_status_comes_back(active: bool) -> None:
    assert decode_element(*encode_element(WatermarkStatus(active))) == WatermarkStatus(active)


@given(st.integers(MIN_TIME, MAX_TIME), st.integers(0, MAX_TIME), st.integers(0, (1 << 31) - 1))
def test_a_latency_marker_comes_back_in_the_28_bytes_it_has_in_flink(time: int, source: int, subtask: int) -> None:
    tag, body = encode_element(LatencyMarker(time, source, subtask))
    assert tag is Tag.LATENCY_MARKER
    assert len(body) == 28
    assert decode_element(tag, body) == LatencyMarker(time, source, subtask)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_an_anchor_comes_back(root: int, number: int) -> None:
    tag, body = encode_element(Anchor(root, number))
    assert (tag, len(body)) == (Tag.ANCHOR, 16)
    assert decode_element(tag, body) == Anchor(root, number)


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        (Tag.ANCHOR, bytes(15)),
        (Tag.WATERMARK, bytes(7)),
        (Tag.WATERMARK, bytes(9)),
        (Tag.WATERMARK_STATUS, b""),
        (Tag.WATERMARK_STATUS, b"\x02"),
        (Tag.LATENCY_MARKER, bytes(27)),
        (Tag.RECORDS, bytes(8)),
        (0, bytes(8)),
        (255, b"\x00"),
    ],
)
def test_what_no_writer_sends_is_corruption(tag: int, body: bytes) -> None:
    with pytest.raises(ExchangeError, match=f"stream corrupted: element tag {int(tag)} with {len(body)} bytes"):
        decode_element(tag, body)
