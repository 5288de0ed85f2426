"""In-flight data as one task's file of a checkpoint has it: by channel, the bytes of elements.

A file is a head (magic, version, length of the index), the index in JSON, and the bytes of one part behind the other.
Checksums are those of all files of a checkpoint.
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
    """Which channel the bytes are of: the exchange's key, and subtasks. `received` says which part: what the consumer
    had received, or else what still stood at the producer and resumes from there."""

    exchange: str
    producer: int
    consumer: int
    received: bool


#: The pieces of a part one behind the other.
InFlightData = Sequence[tuple[ChannelPart, Sequence[memoryview]]]


def encode_in_flight(data: InFlightData) -> list[bytes | memoryview]:
    """As a file's content, in pieces."""
    index = [{**asdict(part), "size": sum(map(len, pieces))} for part, pieces in data]
    text = json.dumps(index).encode()
    return [_HEAD.pack(_MAGIC, _VERSION, len(text)), text, *(piece for _, pieces in data for piece in pieces)]


def decode_in_flight(content: pa.Buffer) -> dict[ChannelPart, memoryview]:
    """The inverse; the bytes are views of `content`. Raises CheckpointError for what is no such file."""
    view = memoryview(content).cast("B")
    try:
        magic, version, length = _HEAD.unpack_from(view)
        if (magic, version) != (_MAGIC, _VERSION):
            raise CheckpointError(f"in-flight data of version {version} with magic {magic!r} cannot be read here")
        shapes.check_length(length)
        at = _HEAD.size + length
        found = {}
        index = json.loads(bytes(view[_HEAD.size : at]))
        _INDEX(index, "the index")
        for entry in index:
            size = entry.pop("size")
            part = ChannelPart(**entry)
            if part in found:
                raise ValueError(f"{part} is there twice")
            found[part] = view[at : at + size]
            at += size
    except (struct.error, ValueError, RecursionError) as error:
        raise UnusableState(f"in-flight data cannot be read: {type(error).__name__}: {error}") from None
    if at != len(view):
        raise CheckpointError(f"in-flight data are torn: {len(view)} bytes where there should be {at}")
    return found
