"""The socket of a link, as the links use it: a plain socket, a TLS socket, or the virtual socket of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, overload

#: The reason of a data link's loss if the peer has closed the connection without a word.
CONNECTION_CLOSED: Final = "the connection was closed"


class LinkSocket(Protocol):
    """A connected socket that never blocks: instead of waiting, a call raises BlockingIOError."""

    def recv(self, size: int, /) -> bytes:
        """Return up to `size` bytes. The result is empty when the peer has ended the connection."""

    def recvmsg_into(self, places: Sequence[memoryview], /) -> tuple[Any, ...]:
        """Fill the places in order. The first value of the result is the number of bytes."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send `data`, as far as the socket accepts them. Returns the number of accepted bytes."""

    def sendmsg(self, pieces: Sequence[bytes | memoryview], ancillary: Sequence[Any], flags: int, /) -> int:
        """Send the pieces, as far as the socket accepts them. Returns the number of accepted bytes."""

    @overload
    def getsockopt(self, level: int, option: int, /) -> int: ...

    @overload
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...

    def fileno(self) -> int:
        """Return the descriptor, or -1 for a socket without one."""

    def close(self) -> None: ...
