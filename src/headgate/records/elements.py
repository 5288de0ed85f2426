"""Stream elements: the records, watermarks, statuses and markers in data buffers. Events are in `events`.

Tags are those of Flink's StreamElementSerializer. A record batch is an element too; it is a `pyarrow.RecordBatch` and
has no class here.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TypeAlias

from headgate.errors import ExchangeError

#: Event time is an int64 of microseconds since the epoch. These two mean "before all rows" and "after all rows".
MIN_TIME = -(1 << 63)
MAX_TIME = (1 << 63) - 1


class Tag(enum.IntEnum):
    """The first byte of a serialised stream element: its kind."""

    RECORDS = 1
    WATERMARK = 2
    LATENCY_MARKER = 3
    WATERMARK_STATUS = 4
    ANCHOR = 16  # Flink has no such element


@dataclass(frozen=True, slots=True)
class WatermarkElement:
    """A watermark: each later row of this channel that is earlier than `time` is late.

    `time` is in microseconds since the epoch.
    """

    time: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """The notice that a channel is active or idle. An idle channel does not hold back its reader's watermark."""

    active: bool


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """A latency probe that a source subtask sent at `time`, in microseconds of the clock since the epoch.

    `source` is the source's node id, `subtask` the subtask's number.
    """

    time: int
    source: int
    subtask: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """The id of the channel's next message, and the root of the message's tree (`MaxPending`). Both have 64 bits."""

    root: int
    id: int


SmallElement: TypeAlias = WatermarkElement | WatermarkStatus | LatencyMarker | Anchor

_TIME = struct.Struct(">q")
#: Flink's operator ids have 128 bits; node ids fill the lower half.
_MARKER = struct.Struct(">q8xqi")
_ANCHOR = struct.Struct(">QQ")


def encode_element(element: SmallElement) -> tuple[Tag, bytes]:
    """Return the tag and the body of a small element."""
    if isinstance(element, WatermarkElement):
        return Tag.WATERMARK, _TIME.pack(element.time)
    if isinstance(element, LatencyMarker):
        return Tag.LATENCY_MARKER, _MARKER.pack(element.time, element.source, element.subtask)
    if isinstance(element, Anchor):
        return Tag.ANCHOR, _ANCHOR.pack(element.root, element.id)
    return Tag.WATERMARK_STATUS, b"\x01" if element.active else b"\x00"


def decode_element(tag: int, body: bytes) -> SmallElement:
    """Return the element of a tag and body, the inverse of `encode_element`. Raises ExchangeError for corrupt bytes."""
    if tag == Tag.WATERMARK and len(body) == _TIME.size:
        return WatermarkElement(_TIME.unpack(body)[0])
    if tag == Tag.LATENCY_MARKER and len(body) == _MARKER.size:
        return LatencyMarker(*_MARKER.unpack(body))
    if tag == Tag.WATERMARK_STATUS and body in (b"\x00", b"\x01"):
        return WatermarkStatus(body == b"\x01")
    if tag == Tag.ANCHOR and len(body) == _ANCHOR.size:
        return Anchor(*_ANCHOR.unpack(body))
    raise ExchangeError(f"stream corrupted: element tag {tag} with {len(body)} bytes")
