"""Bytes to messages, for both ends of a data link. Neither reads a socket: they say where bytes go and are told how
many came."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, Protocol, cast

from headgate.errors import ExchangeError
from headgate.protocol.messages import (
    BUFFER_RESPONSE,
    BUFFER_RESPONSE_ID,
    COMPRESSED_BUFFER,
    DATA_BUFFER,
    EVENT_BUFFER,
    FRAME,
    MAGIC,
    MAX_CONTROL_FRAME,
    MAX_EVENT,
    TO_CONSUMER,
    TO_PRODUCER,
    BufferResponse,
    ToConsumer,
    ToProducer,
    check_frame,
    parse_control,
)

#: What is read beyond the current payload: the next header and the frames that follow when they are small. A larger
#: value
#: would save reads of small frames and cost a copy of as many bytes of each large one.
_STAGING_BYTES: Final = 2048


#: Full segments that one read may fill beyond the one under way; 8 of 32 KiB are half of the kernel's socket buffer.
_READ_AHEAD: Final = 8
_DATA: Final = (DATA_BUFFER, COMPRESSED_BUFFER)


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


class Later(enum.Enum):
    """The type of `LATER`."""

    LATER = "there is no memory now"


LATER: Final = Later.LATER


class Memory(Protocol):
    """Where payloads go; the decoder's user knows what a reservation is, the decoder only carries it about."""

    def allocate(self, response: BufferResponse) -> memoryview | Later | None:
        """A writable view of exactly `size` bytes for the payload behind this header; None to discard it; or LATER,
        and `resume` asks again."""

    def reserve(self, receiver: int, count: int) -> list[tuple[Reservation, memoryview]]:
        """Up to `count` whole segments of a channel, for frames of its that are expected."""

    def claim(self, reservation: Reservation) -> None:
        """The frame has come: its payload is being read into the reserved segment."""

    def filled(self, frames: list[tuple[Reservation, int, int]]) -> None:
        """These frames (with sequence number and backlog) have come whole, into their reserved segments: `claim` and
        completion in one."""

    def give_back(self, reservation: Reservation) -> None:
        """Something else has come."""


Reservation = Any
Item = tuple[BufferResponse, memoryview] | ToConsumer


class ResponseDecoder:
    """The consumer's end: buffers, read straight into the segments they are for.

    `buffers()` are the places to read into, in order; `received(n)` says that n bytes came and yields the messages they
    complete. Behind the payload under way there is room for the next header and some more.

    *Reading ahead*: while full segments stream in, the next ones are expected to be as full and for the channel that
    came
    next the last time (the producer deals turns in a fixed order). Segments of theirs are reserved, and one read then
    fills
    several. Where the guess was wrong the bytes are copied to where they belong, and nothing but time is lost. In
    Python a
    read costs more than the bytes in it: the thread gives the interpreter lock away and has to win it back.
    """

    def __init__(self, memory: Memory, segment_size: int) -> None:
        self._memory = memory
        self._segment_size = segment_size
        self._staging = memoryview(bytearray(_STAGING_BYTES))
        self._staged = b""
        self._current: BufferResponse | None = None
        self._payload: memoryview | None = None
        self._filled = 0
        self._discard = memoryview(bytearray(0))
        self._headers = [memoryview(bytearray(BUFFER_RESPONSE.size)) for _ in range(_READ_AHEAD)]
        self._ahead: deque[tuple[Reservation, memoryview, int]] = deque()
        self._followers: dict[int, int] = {}
        self._last = -1
        self._is_streaming = False

    @property
    def is_waiting(self) -> bool:
        """A frame has no memory yet."""
        return self._current is not None and self._payload is None

    def buffers(self) -> list[memoryview]:
        """Where the next bytes go. Empty while a frame waits for memory: then nothing can be read."""
        if self._payload is None:
            if self.is_waiting:
                return []
            if self._staged:  # in the middle of a header: what follows is not known
                return [self._staging]
            places = []
        else:
            places = [self._payload[self._filled :]]
        if self._is_streaming and len(self._ahead) < _READ_AHEAD // 2:
            self._reserve()
        for header, (_, view, _) in zip(self._headers, self._ahead, strict=False):
            places.append(header)
            places.append(view)
        places.append(self._staging)
        return places

    def _reserve(self) -> None:
        """Reserve for the frames that should come next."""
        receiver = self._ahead[-1][2] if self._ahead else self._last
        while len(self._ahead) < _READ_AHEAD:
            follower = self._followers.get(receiver, -1)
            if follower < 0:
                return
            # A channel that follows itself is alone on the connection for now.
            wanted = _READ_AHEAD - len(self._ahead) if follower == receiver else 1
            reserved = self._memory.reserve(follower, wanted)
            self._ahead.extend((*each, follower) for each in reserved)
            if len(reserved) < wanted:
                return
            receiver = follower

    def forget_ahead(self) -> None:
        """Give back what is reserved, the last first, so that all is as before."""
        while self._ahead:
            self._memory.give_back(self._ahead.pop()[0])

    def close(self) -> None:
        """The connection is gone: let go of all memory."""
        self.forget_ahead()
        self._current = self._payload = None

    def received(self, count: int) -> Iterator[Item]:
        """Account for `count` bytes in `buffers()`. Run it to its end before the next call. Raises ExchangeError."""
        in_header = self._payload is None and bool(self._staged)
        if self._payload is not None:
            direct = min(count, len(self._payload) - self._filled)
            self._filled += direct
            count -= direct
            if self._filled == len(self._payload):
                yield self._complete()
        if count and self._ahead and not in_header:
            count, rest = self._take_ahead(count)
        else:
            rest = b""
        if count:
            rest += bytes(self._staging[:count])
        if rest:
            yield from self._parse(self._staged + rest)

    def _take_ahead(self, count: int) -> tuple[int, bytes]:
        """Go through the reserved places. Returns the bytes that are in the staging area, and those before them that
        did not match what was expected and must be parsed."""
        size, slot = self._segment_size, 0
        filled: list[tuple[Reservation, int, int]] = []
        while count and self._ahead:
            header = self._headers[slot]
            if count < len(header):
                self._memory.filled(filled)
                return self._unexpected(slot, count)
            reservation, view, receiver = self._ahead[0]
            length, magic, message_id, to, sequence, backlog, data_type, got = BUFFER_RESPONSE.unpack(header)
            expected = (len(header) + size, MAGIC, BUFFER_RESPONSE_ID, receiver, DATA_BUFFER, size)
            if (length, magic, message_id, to, data_type, got) != expected:
                self._memory.filled(filled)
                return self._unexpected(slot, count)
            self._ahead.popleft()
            slot += 1
            self._last = receiver
            count -= len(header)
            if count < size:
                self._memory.filled(filled)
                self._memory.claim(reservation)
                self._current = BufferResponse(receiver, sequence, backlog, False, size)
                self._payload, self._filled = view, count
                return 0, b""
            count -= size
            filled.append((reservation, sequence, backlog))
        self._memory.filled(filled)
        return count, b""

    def _unexpected(self, slot: int, count: int) -> tuple[int, bytes]:
        """Collect `count` bytes from the places from `slot` on, in order, and give the reserved ones back."""
        pieces = []
        for header, (_, view, _) in zip(self._headers[slot:], self._ahead, strict=False):
            for place in (header, view):
                pieces.append(bytes(place[:count]))
                count -= len(pieces[-1])
        self.forget_ahead()
        self._is_streaming = False
        return count, b"".join(pieces)

    def _parse(self, data: bytes) -> Iterator[Item]:
        position = 0
        while True:
            if self._payload is not None:
                position += self._fill(data, position)
                if self._filled < len(self._payload):
                    break
                yield self._complete()
            if len(data) - position < FRAME.size:
                break
            length, magic, message_id = FRAME.unpack_from(data, position)
            check_frame(length, magic)
            if message_id == BUFFER_RESPONSE_ID:
                if len(data) - position < BUFFER_RESPONSE.size:
                    break
                self._begin(data, position, length)
                position += BUFFER_RESPONSE.size
                if self._payload is None:  # no memory for it now
                    break
            else:
                if length > MAX_CONTROL_FRAME:
                    raise ExchangeError(f"stream corrupted: a control frame of {length} bytes")
                if len(data) - position < length:
                    break
                body = data[position + FRAME.size : position + length]
                position += length
                yield cast(ToConsumer, parse_control(message_id, body, TO_CONSUMER))
        self._staged = data[position:] if self._payload is None else b""

    def _begin(self, data: bytes, position: int, length: int) -> None:
        _, _, _, receiver, sequence, backlog, data_type, size = BUFFER_RESPONSE.unpack_from(data, position)
        limit = MAX_EVENT if data_type == EVENT_BUFFER else self._segment_size if data_type in _DATA else -1
        if length != BUFFER_RESPONSE.size + size or size > limit:
            raise ExchangeError(f"stream corrupted: a buffer of {size} bytes, type {data_type}, in a frame of {length}")
        is_event, is_compressed = data_type == EVENT_BUFFER, data_type == COMPRESSED_BUFFER
        self._current = BufferResponse(receiver, sequence, backlog, is_event, size, is_compressed)
        self._is_streaming = size == self._segment_size
        self.forget_ahead()
        self._place(self._current)

    def _place(self, response: BufferResponse) -> None:
        """Ask for memory for the payload of the current frame."""
        place = self._memory.allocate(response)
        if place is LATER:
            return
        if place is None:
            if len(self._discard) < response.size:
                self._discard = memoryview(bytearray(max(self._segment_size, MAX_EVENT)))
            place = self._discard[: response.size]
        else:  # of channels that are known: a peer must not make this table grow
            self._followers[self._last] = response.receiver
            self._last = response.receiver
        self._payload = place
        self._filled = 0

    def resume(self) -> Iterator[Item]:
        """Ask again for the memory that a frame waits for, if one does, and go on with what was read behind its header.
        Run it to its end before the next call. Raises ExchangeError."""
        response = self._current
        if response is not None and self._payload is None:
            self._place(response)
            if self._payload is not None:
                yield from self._parse(self._staged)

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
