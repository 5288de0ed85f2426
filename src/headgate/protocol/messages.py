"""The messages of a data link and their bytes.

Frame: `length u32 | magic u32 | message id u8 | body`, big-endian; `length` counts the whole frame. Ids are those of
Flink's NettyMessage; 11 is the signal of a throttle (`throttle_message.py`). `receiver` is the number that the consumer
chose for an input channel, unique on its connection. Data flow from the producer (P) to the consumer (C), requests and
credit from C to P.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Final, get_args

from headgate.errors import ExchangeError
from headgate.protocol.throttle_message import Throttle

MAGIC: Final = 0xBADC0FFE
FRAME: Final = struct.Struct(">IIB")
#: The largest control frame, in bytes. A longer one is an attack or corruption.
MAX_CONTROL_FRAME: Final = 64 << 10
#: The largest body of an event, in bytes.
MAX_EVENT: Final = 1 << 10

# Whole headers, packed in one call: the frame header and the fixed part of the body.
BUFFER_RESPONSE: Final = struct.Struct(">IIBIIIBI")  # frame, receiver, sequence, backlog, data type, size
_PARTITION_REQUEST: Final = struct.Struct(">IIIII")  # edge, producer, subpartition, receiver, initial credit
_COUNT: Final = struct.Struct(">II")  # a credit, backlog or size, and the receiver it is for
_RECEIVER: Final = struct.Struct(">I")

BUFFER_RESPONSE_ID: Final = 0
#: Data types of a BufferResponse.
DATA_BUFFER: Final = 1
EVENT_BUFFER: Final = 2
COMPRESSED_BUFFER: Final = 3
#: The most segments in one BufferResponse. All of them except the last are full.
MAX_RUN: Final = 64
#: The segments that one channel sends, or that a gate polls from it, before the next channel has its turn.
TURN: Final = 8


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """P->C: the channel failed. Without `receiver`, the whole connection failed.

    With `not_found` the partition does not exist yet; the consumer may request it again.
    """

    id: ClassVar[int] = 1
    message: str
    receiver: int | None = None
    not_found: bool = False

    def body(self) -> bytes:
        kind = b"\x02" if self.not_found else b"\x01"
        head = b"\x00" if self.receiver is None else kind + _RECEIVER.pack(self.receiver)
        return head + self.message.encode()[: MAX_CONTROL_FRAME - 64]

    @classmethod
    def parse(cls, body: bytes) -> ErrorResponse:
        if body[:1] == b"\x00":
            return cls(body[1:].decode(errors="replace"))
        (receiver,) = _RECEIVER.unpack_from(body, 1)
        return cls(body[1 + _RECEIVER.size :].decode(errors="replace"), receiver, body[:1] == b"\x02")


@dataclass(frozen=True, slots=True)
class PartitionRequest:
    """C->P: request a subpartition, with the initial `credit` of its channel."""

    id: ClassVar[int] = 2
    edge: int
    producer: int
    subpartition: int
    receiver: int
    credit: int

    def body(self) -> bytes:
        return _PARTITION_REQUEST.pack(self.edge, self.producer, self.subpartition, self.receiver, self.credit)

    @classmethod
    def parse(cls, body: bytes) -> PartitionRequest:
        return cls(*_PARTITION_REQUEST.unpack(body))


@dataclass(frozen=True, slots=True)
class CancelPartitionRequest:
    """C->P: send nothing more to this channel. A consumer also sends it for a finished channel."""

    id: ClassVar[int] = 4
    receiver: int

    def body(self) -> bytes:
        return _RECEIVER.pack(self.receiver)

    @classmethod
    def parse(cls, body: bytes) -> CancelPartitionRequest:
        return cls(*_RECEIVER.unpack(body))


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """C->P: no channel remains on this connection."""

    id: ClassVar[int] = 5

    def body(self) -> bytes:
        return b""

    @classmethod
    def parse(cls, body: bytes) -> CloseRequest:
        if body:
            raise ExchangeError(f"stream corrupted: CloseRequest with a body of {len(body)} bytes")
        return cls()


@dataclass(frozen=True, slots=True)
class AddCredit:
    """C->P: `credit` more buffers are free for this channel."""

    id: ClassVar[int] = 6
    credit: int
    receiver: int

    def body(self) -> bytes:
        return _COUNT.pack(self.credit, self.receiver)

    @classmethod
    def parse(cls, body: bytes) -> AddCredit:
        return cls(*_positive(cls, body))


@dataclass(frozen=True, slots=True)
class ResumeConsumption:
    """C->P: resume after the aligned barrier that blocks this channel."""

    id: ClassVar[int] = 7
    receiver: int

    def body(self) -> bytes:
        return _RECEIVER.pack(self.receiver)

    @classmethod
    def parse(cls, body: bytes) -> ResumeConsumption:
        return cls(*_RECEIVER.unpack(body))


@dataclass(frozen=True, slots=True)
class AckAllUserRecordsProcessed:
    """C->P: all records up to the end of data have been processed."""

    id: ClassVar[int] = 8
    receiver: int

    def body(self) -> bytes:
        return _RECEIVER.pack(self.receiver)

    @classmethod
    def parse(cls, body: bytes) -> AckAllUserRecordsProcessed:
        return cls(*_RECEIVER.unpack(body))


@dataclass(frozen=True, slots=True)
class BacklogAnnouncement:
    """P->C: `backlog` data buffers wait for a channel that has neither credit nor exclusive buffers."""

    id: ClassVar[int] = 9
    backlog: int
    receiver: int

    def body(self) -> bytes:
        return _COUNT.pack(self.backlog, self.receiver)

    @classmethod
    def parse(cls, body: bytes) -> BacklogAnnouncement:
        return cls(*_positive(cls, body))


@dataclass(frozen=True, slots=True)
class NewBufferSize:
    """C->P: fill new buffers for this channel with at most `size` bytes."""

    id: ClassVar[int] = 10
    size: int
    receiver: int

    def body(self) -> bytes:
        return _COUNT.pack(self.size, self.receiver)

    @classmethod
    def parse(cls, body: bytes) -> NewBufferSize:
        return cls(*_positive(cls, body))


def _positive(kind: type, body: bytes) -> tuple[int, int]:
    """Return the count and the receiver. Raises ExchangeError for a count of 0."""
    count, receiver = _COUNT.unpack(body)
    if count == 0:
        raise ExchangeError(f"stream corrupted: {kind.__name__} of 0 for channel {receiver}")
    return count, receiver


@dataclass(slots=True)
class BufferResponse:
    """P->C: one buffer, of one segment or a run of several.

    `sequence` is the number of the first segment. `backlog` counts the data buffers that wait after the last segment.
    """

    receiver: int
    sequence: int
    backlog: int
    is_event: bool
    size: int
    _: KW_ONLY
    is_compressed: bool = False


#: The messages that a consumer sends about one of its channels.
OfChannel = AddCredit | ResumeConsumption | AckAllUserRecordsProcessed | NewBufferSize
ToProducer = PartitionRequest | CancelPartitionRequest | CloseRequest | Throttle | OfChannel
ToConsumer = ErrorResponse | BacklogAnnouncement
#: The messages that each end accepts, by id. Any other id is an error.
TO_PRODUCER: Final = {message.id: message for message in get_args(ToProducer)}
TO_CONSUMER: Final = {message.id: message for message in get_args(ToConsumer)}


def encode(message: ToProducer | ToConsumer) -> bytes:
    """Return the frame of a message."""
    body = message.body()
    return FRAME.pack(FRAME.size + len(body), MAGIC, message.id) + body


def encode_buffer_response(receiver: int, sequence: int, backlog: int, data_type: int, size: int) -> bytes:
    """Return the header of one BufferResponse. The caller writes the payload after the header, without a copy."""
    length = BUFFER_RESPONSE.size + size
    return BUFFER_RESPONSE.pack(length, MAGIC, BUFFER_RESPONSE_ID, receiver, sequence, backlog, data_type, size)


def check_frame(length: int, magic: int) -> None:
    """Raise ExchangeError unless a frame can start with this length and magic number."""
    if magic != MAGIC:
        raise ExchangeError(f"stream corrupted: magic number {magic:#x} instead of {MAGIC:#x}")
    if length < FRAME.size:
        raise ExchangeError(f"stream corrupted: a frame of {length} bytes, where at least {FRAME.size} are needed")


def parse_control(message_id: int, body: bytes, accepted: Mapping[int, type]) -> object:
    """Return the message in a control frame. Raises ExchangeError for an unknown id or a malformed body."""
    kind = accepted.get(message_id)
    if kind is None:
        raise ExchangeError(f"stream corrupted: unexpected message id {message_id}")
    try:
        return kind.parse(body)  # type: ignore[attr-defined]
    except struct.error:
        raise ExchangeError(f"stream corrupted: {kind.__name__} with {len(body)} bytes") from None
