"""Stream elements: what flows between tasks in data buffers, in order with the records. Events are in `events`.

Tags are those of Flink's StreamElementSerializer. A record batch is an element too and has no class of its own here: it
is a `pyarrow.RecordBatch`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TypeAlias

from headgate.errors import ExchangeError

#: Event time is an int64 of microseconds since the epoch; these two are "before all" and "after all".
MIN_TIME = -(1 << 63)
MAX_TIME = (1 << 63) - 1


class Tag(enum.IntEnum):
    """First byte of a serialised stream element."""

    RECORDS = 1
    WATERMARK = 2
    LATENCY_MARKER = 3
    WATERMARK_STATUS = 4


@dataclass(frozen=True, slots=True)
class WatermarkElement:
    """Nothing earlier than `time` (microseconds since the epoch) follows on this channel, late rows excepted."""

    time: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """An idle channel does not hold back its reader's watermark."""

    active: bool


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """Sent at `time` (microseconds since the epoch, by the clock) by a subtask of the source with node id `source`."""

    time: int
    source: int
    subtask: int


SmallElement: TypeAlias = WatermarkElement | WatermarkStatus | LatencyMarker

_TIME = struct.Struct(">q")
#: Operator ids have 128 bits there; ours fill the lower half.
_MARKER = struct.Struct(">q8xqi")


def encode_element(element: SmallElement) -> tuple[Tag, bytes]:
    """Tag and body of a small element."""
    if isinstance(element, WatermarkElement):
        return Tag.WATERMARK, _TIME.pack(element.time)
    if isinstance(element, LatencyMarker):
        return Tag.LATENCY_MARKER, _MARKER.pack(element.time, element.source, element.subtask)
    return Tag.WATERMARK_STATUS, b"\x01" if element.active else b"\x00"


def decode_element(tag: int, body: bytes) -> SmallElement:
    """The inverse of `encode_element`. Raises ExchangeError for what no writer sends."""
    if tag == Tag.WATERMARK and len(body) == _TIME.size:
        return WatermarkElement(_TIME.unpack(body)[0])
    if tag == Tag.LATENCY_MARKER and len(body) == _MARKER.size:
        return LatencyMarker(*_MARKER.unpack(body))
    if tag == Tag.WATERMARK_STATUS and body in (b"\x00", b"\x01"):
        return WatermarkStatus(body == b"\x01")
    raise ExchangeError(f"stream corrupted: element tag {tag} with {len(body)} bytes")
