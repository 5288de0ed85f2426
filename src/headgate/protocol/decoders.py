"""Decode the bytes of a data link to messages, at both ends.

No decoder reads a socket. The caller reads the bytes, and gives the decoder the bytes or their number.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Protocol, cast

from headgate.errors import ExchangeError
from headgate.protocol.messages import (
    BUFFER_RESPONSE,
    BUFFER_RESPONSE_ID,
    COMPRESSED_BUFFER,
    DATA_BUFFER,
    EVENT_BUFFER,
    FRAME,
    MAX_CONTROL_FRAME,
    MAX_EVENT,
    MAX_RUN,
    TO_CONSUMER,
    TO_PRODUCER,
    BufferResponse,
    ToConsumer,
    ToProducer,
    check_frame,
    parse_control,
)

#: The most bytes that one read takes beyond the current payload: the next header, and the next frames if they are
#: small. A larger value would save reads of small frames, but would copy more bytes of each large frame.
_STAGING_BYTES: Final = 2048


class RequestDecoder:
    """The producer's decoder, from bytes to requests and credit. A message may be split over several `feed` calls."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[ToProducer]:
        """Yield the messages that `data` completes. Raises ExchangeError for corrupt bytes; then close the link."""
        data, position = self._rest + data, 0
        while len(data) - position >= FRAME.size:
            length, magic, message_id = FRAME.unpack_from(data, position)
            check_frame(length, magic)
            if length > MAX_CONTROL_FRAME:
                raise ExchangeError(
                    f"stream corrupted: a request of {length} bytes, where at most {MAX_CONTROL_FRAME} are possible"
                )
            if len(data) - position < length:
                break
            body = data[position + FRAME.size : position + length]
            position += length
            yield cast(ToProducer, parse_control(message_id, body, TO_PRODUCER))
        self._rest = data[position:]


class NoMemoryYet(enum.Enum):
    """The type of `NO_MEMORY_YET`. This value means that a frame must wait for memory."""

    NO_MEMORY_YET = "there is no memory now"


NO_MEMORY_YET: Final = NoMemoryYet.NO_MEMORY_YET

#: A run is received in parts of this many segments. The task gets a part while the next one arrives. Without credit
#: at most this many segments stay empty while the peer sends their bytes.
_AT_ONCE: Final = 8


class Memory(Protocol):
    """The source of memory for the payloads of data buffers."""

    def allocate(self, response: BufferResponse, count: int) -> list[memoryview] | NoMemoryYet | None:
        """Return at least one and up to `count` segments for the payload of this header.

        If there are fewer than `count`, the decoder asks for the rest when these are full. None means that the payload
        is to be discarded. NO_MEMORY_YET means that the payload must wait; `resume` then asks again.
        """


#: A decoded control message or buffer. The bytes are an event's body; data are in the segments from `allocate`.
Item = tuple[BufferResponse, bytes] | ToConsumer


class ResponseDecoder:
    """The consumer's decoder. The caller reads payloads straight into their segments.

    `buffers()` returns the places to read into, in order. Behind a payload comes a place for the next header and some
    more bytes. `received(n)` accounts for n bytes and yields the messages that they complete.

    The caller should read when `missing` bytes have arrived. Each read has a high fixed cost, because the thread
    releases the interpreter lock and must take it again.
    """

    def __init__(self, memory: Memory, segment_size: int) -> None:
        self._memory = memory
        self._segment_size = segment_size
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._staged = b""
        self._current: BufferResponse | None = None
        self._rest: BufferResponse | None = None  # the part of the current run that has no memory yet
        self._places: list[memoryview] = []
        self._left = 0  # bytes of the current payload that have not arrived; they go to the places
        self._event: memoryview | None = None
        self._discard = memoryview(b"")
        #: Whether a frame waits for memory.
        self.is_waiting = False

    def buffers(self) -> list[memoryview]:
        """Return the places for the next bytes. The list is empty while a frame waits for memory: do not read then."""
        if self.is_waiting:
            return []
        return [*self._places, self._staging] if self._rest is None else self._places

    @property
    def missing(self) -> int:
        """The number of bytes that must arrive before the next message can be complete."""
        return self._left or 1

    def close(self) -> None:
        """Drop all references to memory after the connection has ended."""
        self._current = self._rest = None
        self._places.clear()

    def received(self, count: int) -> Iterator[Item]:
        """Account for `count` bytes in `buffers()`, and yield the messages that they complete.

        Exhaust the iterator before the next call. Raises ExchangeError for corrupt bytes.
        """
        if self._current is not None:
            direct = min(count, self._left)
            self._advance(direct)
            count -= direct
            if not self._left:
                yield self._complete()
                self._place_rest()
        if count:
            yield from self._parse(self._staged + bytes(self._staging[:count]))

    def _advance(self, count: int) -> None:
        """Account for `count` bytes in the first places."""
        places, full = self._places, 0
        self._left -= count
        while full < len(places) and count >= len(places[full]):
            count -= len(places[full])
            full += 1
        del places[:full]
        if count:
            places[0] = places[0][count:]

    def _parse(self, data: bytes) -> Iterator[Item]:
        position = 0
        while not self.is_waiting:
            if self._current is not None:
                position += self._fill(data, position)
                if self._left:
                    break
                yield self._complete()
                self._place_rest()
                continue
            if len(data) - position < FRAME.size:
                break
            length, magic, message_id = FRAME.unpack_from(data, position)
            check_frame(length, magic)
            if message_id == BUFFER_RESPONSE_ID:
                if len(data) - position < BUFFER_RESPONSE.size:
                    break
                self._begin(data, position, length)
                position += BUFFER_RESPONSE.size
            else:
                if length > MAX_CONTROL_FRAME:
                    raise ExchangeError(
                        f"stream corrupted: a control frame of {length} bytes, where at most {MAX_CONTROL_FRAME} "
                        "are possible"
                    )
                if len(data) - position < length:
                    break
                body = data[position + FRAME.size : position + length]
                position += length
                yield cast(ToConsumer, parse_control(message_id, body, TO_CONSUMER))
        self._staged = data[position:]

    def _begin(self, data: bytes, position: int, length: int) -> None:
        _, _, _, receiver, sequence, backlog, data_type, size = BUFFER_RESPONSE.unpack_from(data, position)
        if length != BUFFER_RESPONSE.size + size or not self._is_possible(data_type, size):
            raise ExchangeError(
                f"stream corrupted: channel {receiver} got a buffer of {size} bytes, type {data_type}, "
                f"in a frame of {length} bytes"
            )
        is_event, is_compressed = data_type == EVENT_BUFFER, data_type == COMPRESSED_BUFFER
        self._place(BufferResponse(receiver, sequence, backlog, is_event, size, is_compressed=is_compressed))

    def _is_possible(self, data_type: int, size: int) -> bool:
        if data_type == EVENT_BUFFER:
            return size <= MAX_EVENT
        if data_type == COMPRESSED_BUFFER:
            return size <= self._segment_size
        return data_type == DATA_BUFFER and size <= MAX_RUN * self._segment_size

    def _place(self, response: BufferResponse) -> None:
        """Ask for memory for the payload of a frame, or for the rest of the payload."""
        self._current = response
        self._left = size = response.size
        if response.is_event:
            self._event = memoryview(bytearray(size))
            self._places = [self._event]
            return
        count = max(1, min(_AT_ONCE, -(-size // self._segment_size)))
        places = self._memory.allocate(response, count)
        self.is_waiting = places is NO_MEMORY_YET
        if places is NO_MEMORY_YET:
            return
        if places is None:
            places = self._discarded(count)
        room = sum(map(len, places))
        if room < size:
            sequence = (response.sequence + room // self._segment_size) & 0xFFFFFFFF
            self._rest = replace(response, sequence=sequence, size=size - room)
            response.backlog += -(-(size - room) // self._segment_size)
            response.size = self._left = room
        elif room > size:
            places[-1] = places[-1][: size - room]
        self._places = places

    def _discarded(self, count: int) -> list[memoryview]:
        """Return `count` views of one segment whose bytes are discarded."""
        if not self._discard:
            self._discard = memoryview(bytearray(self._segment_size))
        return [self._discard] * count

    def resume(self) -> Iterator[Item]:
        """Ask again for the memory that a frame waits for, and decode the bytes that were read after its header.

        Exhaust the iterator before the next call. Raises ExchangeError for corrupt bytes.
        """
        if self._current is not None and self.is_waiting:
            self._place(self._current)
            yield from self._parse(self._staged)

    def _fill(self, data: bytes, position: int) -> int:
        """Copy the payload bytes that arrived together with the header, and return their number."""
        count = min(self._left, len(data) - position)
        end = position + count
        while position < end:
            place = self._places[0]
            part = min(len(place), end - position)
            place[:part] = data[position : position + part]
            self._advance(part)
            position += part
        return count

    def _complete(self) -> tuple[BufferResponse, bytes]:
        assert self._current is not None
        done, self._current = self._current, None
        event, self._event = self._event, None
        self._places.clear()  # the place of an empty payload is still there
        return done, b"" if event is None else bytes(event)

    def _place_rest(self) -> None:
        """Ask for memory for the rest of a run, if the run has a rest."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._place(rest)
