"""Small stream elements, as bytes and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ExchangeError
from headgate.records.elements import (
    MAX_TIME,
    MIN_TIME,
    Tag,
    Watermark,
    WatermarkStatus,
    decode_element,
    encode_element,
)


@given(st.integers(MIN_TIME, MAX_TIME))
def test_a_watermark_of_any_time_comes_back(time: int) -> None:
    tag, body = encode_element(Watermark(time))
    assert tag is Tag.WATERMARK and decode_element(tag, body) == Watermark(time)


@pytest.mark.parametrize("active", [True, False])
def test_a_status_comes_back(active: bool) -> None:
    assert decode_element(*encode_element(WatermarkStatus(active))) == WatermarkStatus(active)


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        (Tag.WATERMARK, bytes(7)),
        (Tag.WATERMARK, bytes(9)),
        (Tag.WATERMARK_STATUS, b""),
        (Tag.WATERMARK_STATUS, b"\x02"),
        (Tag.RECORDS, bytes(8)),
        (0, bytes(8)),
        (255, b"\x00"),
    ],
)
def test_what_no_writer_sends_is_corruption(tag: int, body: bytes) -> None:
    with pytest.raises(ExchangeError, match=f"stream corrupted: element tag {int(tag)} with {len(body)} bytes"):
        decode_element(tag, body)
