"""A virtual connection: two sockets with the kernel's buffers, and the line between them.

A byte that a program sends is first in its send buffer. It leaves when the peer's receive buffer has room. It stays in
the send buffer until the peer's kernel has acknowledged it. The peer's program reads it from the receive buffer. So a
peer that reads nothing stops the sender after the bytes of both buffers, as with a real connection.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, overload

from headgate.simulation.costs import Line
from headgate.simulation.work import Work

#: A socket can be written to again when this share of its send buffer is free, as in Linux.
_WRITABLE: Final = 1 / 3


class VirtualSocket:
    """One end of a virtual connection, with the methods that links call. To copy bytes takes the time of `work`.

    `changed` is called when the socket may have become ready to read or to write. Make both ends with `connection`.
    """

    def __init__(self, work: Work, line: Line) -> None:
        self._work = work
        self._world = work.world
        self._line = line
        self._number = work.world.new_number()
        self._peer = self
        self.changed: Callable[[VirtualSocket], None] = _ignore
        self._closed = False
        # The sending side: accepted bytes that the peer's kernel has no room for, and bytes without acknowledgement.
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._unacknowledged: deque[tuple[float, int]] = deque()
        self._unacknowledged_bytes = 0
        self._occupied = 0  # bytes of the peer's receive buffer that are taken, as far as this end knows
        self._freed: deque[tuple[float, int]] = deque()
        self._line_free = 0.0
        self._on_the_line = 0
        self._look_at = -1.0
        self._wants_room = False
        # The receiving side.
        self._received: deque[memoryview] = deque()
        self._received_bytes = 0
        self._low_water = 1

    # --- the methods of a socket

    def send(self, data: bytes | memoryview, /) -> int:
        """Accept bytes until the send buffer is full. Raises BlockingIOError if it is full already."""
        return self.sendmsg((data,), (), 0)

    def sendmsg(self, pieces: Sequence[bytes | memoryview], ancillary: Sequence[Any], flags: int, /) -> int:
        """Accept bytes until the send buffer is full. Raises BlockingIOError if it is full already."""
        self._settle()
        room = self._line.buffer - self._in_send_buffer
        if room <= 0:
            raise BlockingIOError
        data = memoryview(b"".join(pieces))[:room]
        self._work.copy(len(data))
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self._transmit()
        return len(data)

    def recv(self, size: int, /) -> bytes:
        """Return up to `size` received bytes. Raises BlockingIOError if there are none."""
        place = memoryview(bytearray(size))
        (count,) = self.recvmsg_into((place,))
        return bytes(place[:count])

    def recvmsg_into(self, places: Sequence[memoryview], /) -> tuple[int]:
        """Fill the places with received bytes, and return (their number,). Raises BlockingIOError if there are none."""
        if not self._received_bytes:
            raise BlockingIOError
        count, received = 0, self._received
        for place in places:
            at = 0
            while at < len(place) and received:
                chunk = received.popleft()
                taken = min(len(chunk), len(place) - at)
                place[at : at + taken] = chunk[:taken]
                at += taken
                if taken < len(chunk):
                    received.appendleft(chunk[taken:])
            count += at
            if not received:
                break
        self._received_bytes -= count
        self._work.copy(count)
        self._peer._has_room_at(self._world.clock() + self._line.latency, count)
        return (count,)

    @overload
    def getsockopt(self, level: int, option: int, /) -> int: ...

    @overload
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...

    def getsockopt(self, level: int, option: int, size: int = 0, /) -> int | bytes:
        """Return the size of the receive buffer, the only option that links read."""
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVBUF)
        return self._line.buffer

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set how many bytes make the socket readable, the only option that links write."""
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self._low_water = value

    def fileno(self) -> int:
        """Return -1: the socket has no descriptor."""
        return -1

    def close(self) -> None:
        """Drop all bytes. The peer is not told: a simulated job closes all links at its end."""
        self._closed = True
        self._unsent.clear()
        self._received.clear()
        self._unsent_bytes = self._received_bytes = 0

    # --- what the virtual network asks

    def ready(self, mask: int) -> int:
        """Return for which events of `mask` the socket is ready. If it is not ready to write, `changed` follows."""
        ready = 0
        if mask & selectors.EVENT_READ and self._received_bytes >= self._low_water:
            ready |= selectors.EVENT_READ
        if mask & selectors.EVENT_WRITE:
            self._settle()
            self._wants_room = not self._is_writable
            if self._wants_room:
                self._look_again()
            else:
                ready |= selectors.EVENT_WRITE
        return ready

    @property
    def in_kernel(self) -> int:
        """The bytes that this end has accepted and its peer's program has not read."""
        return self._unsent_bytes + self._on_the_line + self._peer._received_bytes

    # --- the kernel and the line

    @property
    def _in_send_buffer(self) -> int:
        return self._unsent_bytes + self._unacknowledged_bytes

    @property
    def _is_writable(self) -> bool:
        return self._line.buffer - self._in_send_buffer >= _WRITABLE * self._line.buffer

    def _settle(self) -> None:
        """Account for the acknowledgements and the room that have reached this end by now."""
        now = self._world.clock()
        while self._unacknowledged and self._unacknowledged[0][0] <= now:
            self._unacknowledged_bytes -= self._unacknowledged.popleft()[1]
        while self._freed and self._freed[0][0] <= now:
            self._occupied -= self._freed.popleft()[1]

    def _transmit(self) -> None:
        """Put unsent bytes on the line, as far as the peer's receive buffer has room."""
        line, now = self._line, self._world.clock()
        while self._unsent and (room := line.buffer - self._occupied) > 0:
            chunk = self._unsent.popleft()
            if len(chunk) > room:
                self._unsent.appendleft(chunk[room:])
                chunk = chunk[:room]
            size = len(chunk)
            self._line_free = max(now, self._line_free) + size / line.bytes_per_s
            arrival = self._line_free + line.latency
            self._unsent_bytes -= size
            self._occupied += size
            self._on_the_line += size
            self._unacknowledged.append((arrival + line.latency, size))
            self._unacknowledged_bytes += size
            self._world.at(arrival, partial(self._peer._arrive, chunk))
        if self._unsent:
            self._look_again()

    def _look_again(self) -> None:
        """Look again when the next acknowledgement or the next room arrives, if one is on the way."""
        on_the_way = [queue[0][0] for queue in (self._unacknowledged, self._freed) if queue]
        if on_the_way and not self._world.now < self._look_at <= min(on_the_way):
            self._look_at = min(on_the_way)
            self._world.at(self._look_at, self._look)

    def _look(self) -> None:
        if self._closed:
            return
        self._settle()
        self._transmit()
        if self._wants_room:
            if self._is_writable:
                self._wants_room = False
                self.changed(self)
            else:
                self._look_again()

    def _has_room_at(self, time: float, count: int) -> None:
        """Record that the peer's program has read `count` bytes. This end learns of it at `time`."""
        self._freed.append((time, count))
        if self._unsent:
            self._look_again()

    def _arrive(self, chunk: memoryview) -> None:
        self._peer._on_the_line -= len(chunk)
        if self._closed:
            return
        self._received.append(chunk)
        self._received_bytes += len(chunk)
        self._world.log.add(self._world.now, self._number, len(chunk))
        if self._received_bytes >= self._low_water:
            self.changed(self)


def connection(work: Work, line: Line) -> tuple[VirtualSocket, VirtualSocket]:
    """Return the two ends of a new connection."""
    one, other = VirtualSocket(work, line), VirtualSocket(work, line)
    one._peer, other._peer = other, one
    return one, other


def _ignore(sock: VirtualSocket) -> None: ...
