"""Serialise stream elements to bytes that span network buffers, and deserialise them.

An element is `length u32 | tag u8 | body`; `length` counts tag and body. Elements follow each other without padding. An
element may start anywhere in a buffer and end in a later buffer. The body of a record batch is copied twice only: the
writer copies it into segments, and the reader copies it into 64-byte-aligned Arrow memory. The decoded batch uses this
memory in place. The results of a step have Flink's names; Flink calls an element a "record".
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from headgate.errors import ExchangeError
from headgate.records.arrow import CHECKSUM_BYTES, BatchCodec
from headgate.records.elements import SmallElement, Tag, decode_element, encode_element

_HEADER: Final = struct.Struct(">IB")
#: The largest body of a batch, in bytes. A longer one means corruption.
MAX_ELEMENT_BYTES: Final = 1 << 31
_SMALL_BODY_LIMIT: Final = 64
_NOTHING: Final = memoryview(b"")

Element: TypeAlias = pa.RecordBatch | SmallElement


def serialize(element: Element, codec: BatchCodec) -> list[memoryview]:
    """Return the bytes of an element as a few contiguous pieces, to copy into segments in order."""
    if isinstance(element, pa.RecordBatch):
        checksum, message = codec.encode(element)
        header = _HEADER.pack(1 + CHECKSUM_BYTES + message.size, Tag.RECORDS) + checksum
        return [memoryview(header), memoryview(message).cast("B")]
    return serialize_small(element)


def serialize_small(element: SmallElement) -> list[memoryview]:
    """Return the bytes of an element without rows, as one piece."""
    tag, body = encode_element(element)
    return [memoryview(_HEADER.pack(1 + len(body), tag) + body)]


class SerializationResult(enum.Enum):
    """The result of one copy into a segment. It tells whether the record is complete and whether the buffer is full."""

    PARTIAL_RECORD_MEMORY_SEGMENT_FULL = enum.auto()
    FULL_RECORD_MEMORY_SEGMENT_FULL = enum.auto()
    FULL_RECORD = enum.auto()

    @property
    def is_full_record(self) -> bool:
        return self is not SerializationResult.PARTIAL_RECORD_MEMORY_SEGMENT_FULL

    @property
    def is_full_buffer(self) -> bool:
        return self is not SerializationResult.FULL_RECORD


class SegmentWriter(Protocol):
    """The methods of a buffer builder that the serialiser calls."""

    @property
    def is_full(self) -> bool: ...

    def append(self, data: memoryview) -> int:
        """Copy as much of `data` as fits, and return the number of bytes copied."""


class SpanningSerializer:
    """The bytes of one element that are still to be copied into the segments of one channel.

    It refers to the pieces without a copy, so the channels of a broadcast share them.
    """

    __slots__ = ("_pieces", "remaining", "size")

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = deque(pieces)
        self.size = self.remaining = sum(map(len, self._pieces))

    @property
    def rest(self) -> list[memoryview]:
        """The bytes that are in no segment yet. Reading them changes nothing."""
        return list(self._pieces)

    def copy_to(self, segment: SegmentWriter) -> SerializationResult:
        """Append to a segment the bytes that fit. The rest stays for the next segment."""
        pieces = self._pieces
        while pieces:
            piece = pieces[0]
            written = segment.append(piece)
            self.remaining -= written
            if written < len(piece):
                pieces[0] = piece[written:]
                return SerializationResult.PARTIAL_RECORD_MEMORY_SEGMENT_FULL
            pieces.popleft()
        if segment.is_full:
            return SerializationResult.FULL_RECORD_MEMORY_SEGMENT_FULL
        return SerializationResult.FULL_RECORD

    def fill(self, segments: Iterable[memoryview]) -> int:
        """Fill one segment after the other while bytes remain, and return the number of bytes copied."""
        pieces, before = self._pieces, self.remaining
        for segment in segments:
            room = segment
            while pieces and room:
                piece, count = pieces[0], len(room)
                if count < len(piece):
                    room[:] = piece[:count]
                    pieces[0] = piece[count:]
                    self.remaining -= count
                    break
                room[: len(piece)] = pieces.popleft()
                room = room[len(piece) :]
                self.remaining -= len(piece)
        return before - self.remaining


class DeserializationResult(enum.Enum):
    """The result of one step of reading. It tells whether a record is complete and whether the buffer is consumed."""

    PARTIAL_RECORD = enum.auto()
    INTERMEDIATE_RECORD_FROM_BUFFER = enum.auto()
    LAST_RECORD_FROM_BUFFER = enum.auto()

    @property
    def is_full_record(self) -> bool:
        return self is not DeserializationResult.PARTIAL_RECORD

    @property
    def is_buffer_consumed(self) -> bool:
        return self is not DeserializationResult.INTERMEDIATE_RECORD_FROM_BUFFER


class MessageMemory(Protocol):
    """The source of memory for incoming messages; see `Gathering` in `exchange/gathering.py`."""

    def allocate(self, size: int) -> pa.Buffer:
        """Return writable memory for a message, aligned to 64 bytes."""

    def complete(self, message: pa.Buffer) -> None:
        """Stop counting a message as incoming: it is complete and will be decoded."""


class _Heap:
    """The message memory of Arrow's allocator, without a count of bytes."""

    def allocate(self, size: int) -> pa.Buffer:
        return pa.allocate_buffer(size)

    def complete(self, message: pa.Buffer) -> None: ...


class SpanningDeserializer:
    """The decoder of one channel: it turns the channel's buffers into elements, in order."""

    __slots__ = ("_body", "_codec", "_data", "_element", "_filled", "_head", "_memory", "_message", "_position", "_tag")

    def __init__(self, codec: BatchCodec, memory: MessageMemory | None = None) -> None:
        self._codec = codec
        self._memory = memory or _Heap()
        self._data = _NOTHING
        self._position = 0
        self._element: Element | None = None
        self._head = b""
        self._tag = 0
        self._message: pa.Buffer | None = None
        self._body: memoryview | None = None
        self._filled = 0

    @property
    def partial(self) -> list[memoryview]:
        """The received bytes of an incomplete element. Reading them changes nothing."""
        if self._body is None:
            return [memoryview(self._head)] if self._head else []
        return [memoryview(self._head), self._body[: self._filled]]

    def feed(self, views: Iterable[memoryview]) -> list[Element]:
        """Copy all bytes of the views, in order, and return the elements that they complete.

        Raises ExchangeError for corrupt bytes.
        """
        elements: list[Element] = []
        try:
            for data in views:
                body, end = self._body, self._filled + len(data)
                if body is not None and end < len(body):  # the fast path in the middle of an element
                    body[self._filled : end] = data
                    self._filled = end
                    continue
                self.set_next_buffer(data)
                self._take_all(elements)
        finally:
            self._data = _NOTHING  # also after an error: no view of a segment may remain
        return elements

    def _take_all(self, elements: list[Element]) -> None:
        while True:
            result = self.next_record()
            if result.is_full_record:
                elements.append(self.take())
            if result.is_buffer_consumed:
                return

    def set_next_buffer(self, data: memoryview) -> None:
        """Continue with the buffer `data`, after the previous buffer is consumed.

        The caller keeps `data` valid until it is consumed.
        """
        self._data, self._position = data, 0

    def next_record(self) -> DeserializationResult:
        """Copy bytes up to the end of the current element. When the record is full, `take` returns the element.

        Raises ExchangeError for corrupt bytes.
        """
        data, position, end = self._data, self._position, len(self._data)
        if self._body is None:
            position = self._read_head(data, position)
        body = self._body
        if body is None:
            return DeserializationResult.PARTIAL_RECORD
        filled = self._filled
        count = min(len(body) - filled, end - position)
        body[filled : filled + count] = data[position : position + count] if count < end else data
        self._filled = filled + count
        self._position = position = position + count
        if filled + count < len(body):
            return DeserializationResult.PARTIAL_RECORD
        self._element = self._complete()
        if position < end:
            return DeserializationResult.INTERMEDIATE_RECORD_FROM_BUFFER
        return DeserializationResult.LAST_RECORD_FROM_BUFFER

    def take(self) -> Element:
        """Return the element that the last `next_record` completed. A second call raises ExchangeError."""
        element, self._element = self._element, None
        if element is None:
            raise ExchangeError(
                f"an element was taken before it was complete: {self._filled} bytes of its body have arrived"
            )
        return element

    def _read_head(self, data: memoryview, position: int) -> int:
        """Collect the length, the tag and, for records, the checksum. Then allocate the body.

        Returns the position after the bytes that were used.
        """
        head = self._head
        if len(head) < _HEADER.size:
            take = _HEADER.size - len(head)
            head += bytes(data[position : position + take])
            position += take
            if len(head) < _HEADER.size:
                self._head = head
                return position
        length, tag = _HEADER.unpack_from(head)
        if tag == Tag.RECORDS:
            missing = _HEADER.size + CHECKSUM_BYTES - len(head)
            head += bytes(data[position : position + missing])
            position += missing
        self._head = head
        if tag != Tag.RECORDS or len(head) == _HEADER.size + CHECKSUM_BYTES:
            self._allocate(length, tag)
        return position

    def _allocate(self, length: int, tag: int) -> None:
        size = length - 1 - (CHECKSUM_BYTES if tag == Tag.RECORDS else 0)
        if not 0 < size <= (MAX_ELEMENT_BYTES if tag == Tag.RECORDS else _SMALL_BODY_LIMIT):
            raise ExchangeError(f"stream corrupted: element tag {tag} with length {length}")
        self._tag = tag
        self._message = self._memory.allocate(size) if tag == Tag.RECORDS else pa.allocate_buffer(size)
        self._body = memoryview(self._message).cast("B")
        self._filled = 0

    def _complete(self) -> Element:
        assert self._body is not None
        head, message, body = self._head, self._message, self._body
        self._head, self._message, self._body = b"", None, None
        if self._tag == Tag.RECORDS:
            self._memory.complete(message)
            return self._codec.decode(head[_HEADER.size :], message)
        return decode_element(self._tag, bytes(body))
