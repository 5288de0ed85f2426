"""Bytes to messages, for both ends of a data link. Neither reads a socket: they say where bytes go and are told how many came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, cast

from headgate.errors import ExchangeError
from headgate.protocol.messages import (
    BUFFER_RESPONSE,
    BUFFER_RESPONSE_ID,
    DATA_BUFFER,
    EVENT_BUFFER,
    FRAME,
    MAX_CONTROL_FRAME,
    TO_CONSUMER,
    TO_PRODUCER,
    BufferResponse,
    ErrorResponse,
    ToProducer,
    check_frame,
    parse_control,
)

#: What is read beyond the current payload: the next header and the frames that follow when they are small. A larger value
#: would save reads of small frames and cost a copy of as many bytes of each large one.
_STAGING_BYTES: Final = 2048


class RequestDecoder:
    """The producer's end: requests and credit. `feed` takes bytes however they were cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[ToProducer]:
        """The messages that `data` completes. Raises ExchangeError; the connection is then of no more use."""
        data, position = self._rest + data, 0
        while len(data) - position >= FRAME.size:
            length, magic, message_id = FRAME.unpack_from(data, position)
            check_frame(length, magic)
            if length > MAX_CONTROL_FRAME:
                raise ExchangeError(f"stream corrupted: a request of {length} bytes")
            if len(data) - position < length:
                break
            body = data[position + FRAME.size : position + length]
            position += length
            yield cast(ToProducer, parse_control(message_id, body, TO_PRODUCER))
        self._rest = data[position:]


#: Given a header, where its payload goes: a writable view of exactly `size` bytes, or None to discard it.
Allocate = Callable[[BufferResponse], memoryview | None]


class ResponseDecoder:
    """The consumer's end: buffers, read straight into the segments they are for.

    `buffers()` are the places to read into, in order; `received(n)` says that n bytes came and yields the messages they
    complete. Behind the payload under way there is always room for the next header, so a stream of large frames takes one
    read each.
    """

    def __init__(self, allocate: Allocate, max_payload: int) -> None:
        self._allocate = allocate
        self._max_payload = max_payload
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._staged = b""
        self._current: BufferResponse | None = None
        self._payload: memoryview | None = None
        self._filled = 0
        self._discard = memoryview(bytearray(0))

    def buffers(self) -> list[memoryview]:
        """Where the next bytes go; never empty."""
        if self._payload is not None:
            return [self._payload[self._filled :], self._staging]
        return [self._staging]

    def received(self, count: int) -> Iterator[tuple[BufferResponse, memoryview] | ErrorResponse]:
        """Account for `count` bytes in `buffers()`. Must be run to its end before the next call. Raises ExchangeError."""
        data = b""
        if self._payload is not None:
            direct = min(count, len(self._payload) - self._filled)
            self._filled += direct
            count -= direct
            if self._filled == len(self._payload):
                yield self._complete()
        if count:
            data = bytes(self._staging[:count])
        yield from self._parse(self._staged + data if self._staged else data)

    def _parse(self, data: bytes) -> Iterator[tuple[BufferResponse, memoryview] | ErrorResponse]:
        position = 0
        while len(data) - position >= FRAME.size:
            length, magic, message_id = FRAME.unpack_from(data, position)
            check_frame(length, magic)
            if message_id == BUFFER_RESPONSE_ID:
                if len(data) - position < BUFFER_RESPONSE.size:
                    break
                self._begin(data, position, length)
                position += BUFFER_RESPONSE.size
                position += self._fill(data, position)
                if self._payload is not None and self._filled < len(self._payload):
                    break
                yield self._complete()
            else:
                if length > MAX_CONTROL_FRAME:
                    raise ExchangeError(f"stream corrupted: a control frame of {length} bytes")
                if len(data) - position < length:
                    break
                body = data[position + FRAME.size : position + length]
                position += length
                yield cast(ErrorResponse, parse_control(message_id, body, TO_CONSUMER))
        self._staged = data[position:] if self._payload is None else b""

    def _begin(self, data: bytes, position: int, length: int) -> None:
        _, _, _, receiver, sequence, backlog, data_type, size = BUFFER_RESPONSE.unpack_from(data, position)
        if length != BUFFER_RESPONSE.size + size or size > self._max_payload or data_type not in (DATA_BUFFER, EVENT_BUFFER):
            raise ExchangeError(f"stream corrupted: a buffer of {size} bytes, type {data_type}, in a frame of {length}")
        self._current = BufferResponse(receiver, sequence, backlog, data_type == EVENT_BUFFER, size)
        place = self._allocate(self._current)
        if place is None:
            if len(self._discard) < size:
                self._discard = memoryview(bytearray(self._max_payload))
            place = self._discard[:size]
        self._payload = place
        self._filled = 0

    def _fill(self, data: bytes, position: int) -> int:
        assert self._payload is not None
        count = min(len(self._payload), len(data) - position)
        self._payload[:count] = data[position : position + count]
        self._filled = count
        return count

    def _complete(self) -> tuple[BufferResponse, memoryview]:
        assert self._current is not None and self._payload is not None
        done = self._current, self._payload
        self._current = self._payload = None
        self._filled = 0
        return done
