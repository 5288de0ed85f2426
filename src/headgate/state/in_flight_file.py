"""Encodes one task's in-flight data as a file of a checkpoint: the bytes of elements, by channel.

The file begins with a head: magic, version and the length of the index. Then come the index in JSON, and the bytes of
all parts. The file holds no checksum: `_metadata` holds the checksums of all files.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa

from headgate.errors import CheckpointError, UnusableState
from headgate.state import shapes

_HEAD: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"HGIF"
_VERSION: Final = 1
_SUBTASK: Final = shapes.whole(0, 1 << 31)
_INDEX: Final = shapes.items(
    shapes.fields(
        {
            "exchange": shapes.text,
            "producer": _SUBTASK,
            "consumer": _SUBTASK,
            "received": shapes.truth,
            "size": shapes.count,
        }
    )
)


@dataclass(frozen=True, slots=True)
class ChannelPart:
    """Names the in-flight bytes at one side of a channel.

    `exchange` is the exchange's key; `producer` and `consumer` are numbers of subtasks. `received` is true for bytes
    that the consumer had received. It is false for bytes that still waited at the producer. After a restart the
    producer sends these bytes.
    """

    exchange: str
    producer: int
    consumer: int
    received: bool


#: The in-flight data of a task: for each part its bytes, in pieces.
InFlightData = Sequence[tuple[ChannelPart, Sequence[memoryview]]]


def encode_in_flight(data: InFlightData) -> list[bytes | memoryview]:
    """Return the content of the file that holds the data, in pieces."""
    index = [{**asdict(part), "size": sum(map(len, pieces))} for part, pieces in data]
    text = json.dumps(index).encode()
    return [_HEAD.pack(_MAGIC, _VERSION, len(text)), text, *(piece for _, pieces in data for piece in pieces)]


def decode_in_flight(content: pa.Buffer) -> dict[ChannelPart, memoryview]:
    """Return the bytes of each part, as views of `content`. Raises CheckpointError for a torn or foreign file."""
    view = memoryview(content).cast("B")
    try:
        magic, version, length = _HEAD.unpack_from(view)
        if (magic, version) != (_MAGIC, _VERSION):
            raise CheckpointError(f"in-flight data of version {version} with magic {magic!r} cannot be read here")
        shapes.check_length(length)
        at = _HEAD.size + length
        parts = {}
        index = json.loads(bytes(view[_HEAD.size : at]))
        _INDEX(index, "the index")
        for entry in index:
            size = entry.pop("size")
            part = ChannelPart(**entry)
            if part in parts:
                raise ValueError(f"{part} occurs twice")
            parts[part] = view[at : at + size]
            at += size
    except (struct.error, ValueError, RecursionError) as error:
        raise UnusableState(f"in-flight data cannot be read: {type(error).__name__}: {error}") from None
    if at != len(view):
        raise CheckpointError(f"in-flight data are incomplete: {len(view)} bytes where there should be {at}")
    return parts
