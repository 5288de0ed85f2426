"""Stream elements as bytes that span network buffers.

An element is `length u32 | tag u8 | body`; `length` counts tag and body. Elements follow each other without padding,
and one may begin anywhere in a buffer and end in a later one. The body of a record batch is gathered into
64-byte-aligned Arrow memory, so that the decoded batch can be used in place; that copy, and the one into the segment,
are the only two.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import pyarrow as pa

from headgate.errors import ExchangeError
from headgate.records.arrow import CHECKSUM_BYTES, BatchCodec
from headgate.records.elements import Tag, Watermark, WatermarkStatus, decode_element, encode_element

_HEADER: Final = struct.Struct(">IB")
#: A length above this is taken for corruption: no writer makes one batch or record as long.
MAX_ELEMENT_BYTES: Final = 1 << 31
_SMALL_BODY_LIMIT: Final = 64

Element: TypeAlias = pa.RecordBatch | Watermark | WatermarkStatus


def serialize(element: Element, codec: BatchCodec) -> list[memoryview]:
    """The bytes of an element as a few contiguous pieces, to be copied into segments one after the other."""
    if isinstance(element, pa.RecordBatch):
        checksum, message = codec.encode(element)
        header = _HEADER.pack(1 + CHECKSUM_BYTES + message.size, Tag.RECORDS) + checksum
        return [memoryview(header), memoryview(message).cast("B")]
    tag, body = encode_element(element)
    return [memoryview(_HEADER.pack(1 + len(body), tag) + body)]


class SpanningDeserializer:
    """Elements of one channel from its buffers, in order. What is gathered so far is `gathering` bytes."""

    __slots__ = ("_body", "_codec", "_filled", "_head", "_message", "_tag")

    def __init__(self, codec: BatchCodec) -> None:
        self._codec = codec
        self._head = b""
        self._tag = 0
        self._message: pa.Buffer | None = None
        self._body: memoryview | None = None
        self._filled = 0

    @property
    def gathering(self) -> int:
        """Bytes of memory held by an element that is not yet complete."""
        return len(self._body) if self._body is not None else 0

    @property
    def is_between_elements(self) -> bool:
        return self._body is None and not self._head

    def feed(self, data: memoryview) -> list[Element]:
        """Copy out all of `data`; returns the elements it completes."""
        elements: list[Element] = []
        position, end = 0, len(data)
        while position < end:
            if self._body is None:
                position = self._read_head(data, position)
                if self._body is None:
                    break
            body, filled = self._body, self._filled
            count = min(len(body) - filled, end - position)
            body[filled : filled + count] = data[position : position + count] if count < end else data
            self._filled = filled = filled + count
            position += count
            if filled == len(body):
                elements.append(self._complete())
        return elements

    def _read_head(self, data: memoryview, position: int) -> int:
        """Collect length, tag and, for records, the checksum; then make room for the body."""
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
        self._message = pa.allocate_buffer(size)
        self._body = memoryview(self._message).cast("B")
        self._filled = 0

    def _complete(self) -> Element:
        assert self._body is not None
        head, message, body = self._head, self._message, self._body
        self._head, self._message, self._body = b"", None, None
        if self._tag == Tag.RECORDS:
            return self._codec.decode(head[_HEADER.size :], message)
        return decode_element(self._tag, bytes(body))
