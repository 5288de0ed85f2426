"""Bytes to messages, for both ends of a data link. Neither reads a socket: they say where bytes go and hear how
many came."""

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

#: What is read beyond the current payload: the next header and the frames that follow when they are small. A larger
#: value would save reads of small frames and cost a copy of as many bytes of each large one.
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


class NoMemoryYet(enum.Enum):
    """The type of `NO_MEMORY_YET`."""

    NO_MEMORY_YET = "there is no memory now"


NO_MEMORY_YET: Final = NoMemoryYet.NO_MEMORY_YET

#: A run is received in parts of so many segments: each goes to the task while the next is still coming, and without
#: credit no more than these stand idle until the peer has sent their bytes.
_AT_ONCE: Final = 8


class Memory(Protocol):
    """Where the payloads of data buffers go."""

    def allocate(self, response: BufferResponse, count: int) -> list[memoryview] | NoMemoryYet | None:
        """`count` segments for the payload behind this header, or the first of them, and the rest is asked for when
        they are full; None to discard it; or NO_MEMORY_YET, and `resume` asks again."""


#: A control message, or a buffer that has come: an event with its body, data in what `allocate` gave for them.
Item = tuple[BufferResponse, bytes] | ToConsumer


class ResponseDecoder:
    """The consumer's end: buffers, read straight into the segments they are for.

    `buffers()` are the places to read into, in order; `received(n)` says that n bytes came and yields the messages they
    complete. Behind the payload under way there is room for the next header and some more. `missing` bytes are worth
    waiting for: in Python a read costs more than the bytes in it, since the thread gives the interpreter lock away and
    has to win it back.
    """

    def __init__(self, memory: Memory, segment_size: int) -> None:
        self._memory = memory
        self._segment_size = segment_size
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._staged = b""
        self._current: BufferResponse | None = None
        self._rest: BufferResponse | None = None  # the part of the run under way that has no memory yet
        self._places: list[memoryview] = []
        self._left = 0  # bytes of the current payload that are still to come; they go to the places
        self._event: memoryview | None = None
        self._discard = memoryview(b"")
        #: A frame has no memory yet.
        self.is_waiting = False

    def buffers(self) -> list[memoryview]:
        """Where the next bytes go. Empty while a frame waits for memory: then nothing can be read."""
        if self.is_waiting:
            return []
        return [*self._places, self._staging] if self._rest is None else self._places

    @property
    def missing(self) -> int:
        """With fewer bytes than this no message can be completed."""
        return self._left or 1

    def close(self) -> None:
        """The connection is gone: let go of all memory."""
        self._current = self._rest = None
        self._places.clear()

    def received(self, count: int) -> Iterator[Item]:
        """Account for `count` bytes in `buffers()`. Run it to its end before the next call. Raises ExchangeError."""
        if self._current is not None:
            direct = min(count, self._left)
            self._advance(direct)
            count -= direct
            if not self._left:
                yield self._complete()
                self._go_on()
        if count:
            yield from self._parse(self._staged + bytes(self._staging[:count]))

    def _advance(self, count: int) -> None:
        """So many bytes are in the first places."""
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
                self._go_on()
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
                    raise ExchangeError(f"stream corrupted: a control frame of {length} bytes")
                if len(data) - position < length:
                    break
                body = data[position + FRAME.size : position + length]
                position += length
                yield cast(ToConsumer, parse_control(message_id, body, TO_CONSUMER))
        self._staged = data[position:]

    def _begin(self, data: bytes, position: int, length: int) -> None:
        _, _, _, receiver, sequence, backlog, data_type, size = BUFFER_RESPONSE.unpack_from(data, position)
        if length != BUFFER_RESPONSE.size + size or not self._is_possible(data_type, size):
            raise ExchangeError(f"stream corrupted: a buffer of {size} bytes, type {data_type}, in a frame of {length}")
        is_event, is_compressed = data_type == EVENT_BUFFER, data_type == COMPRESSED_BUFFER
        self._place(BufferResponse(receiver, sequence, backlog, is_event, size, is_compressed=is_compressed))

    def _is_possible(self, data_type: int, size: int) -> bool:
        if data_type == EVENT_BUFFER:
            return size <= MAX_EVENT
        if data_type == COMPRESSED_BUFFER:
            return size <= self._segment_size
        return data_type == DATA_BUFFER and size <= MAX_RUN * self._segment_size

    def _place(self, response: BufferResponse) -> None:
        """Ask for memory for the payload of a frame, or for what is left of it."""
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
        """Segments that are never read; they may be one and the same."""
        if not self._discard:
            self._discard = memoryview(bytearray(self._segment_size))
        return [self._discard] * count

    def resume(self) -> Iterator[Item]:
        """Ask again for the memory that a frame waits for, if one does, and go on with what was read behind its header.
        Run it to its end before the next call. Raises ExchangeError."""
        if self._current is not None and self.is_waiting:
            self._place(self._current)
            yield from self._parse(self._staged)

    def _fill(self, data: bytes, position: int) -> int:
        """Copy what came with the header."""
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
        self._places.clear()  # of an empty payload
        return done, b"" if event is None else bytes(event)

    def _go_on(self) -> None:
        """With the rest of a run, if there is any."""
        if self._rest is not None:
            rest, self._rest = self._rest, None
            self._place(rest)
