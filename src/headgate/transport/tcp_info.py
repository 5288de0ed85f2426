"""Read the kernel's values for a TCP connection (Linux: TCP_INFO): its round trip, and what limits its sender."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final, NamedTuple

from headgate.transport.link_socket import LinkSocket

#: The size of the buffer for the structure, in bytes. The structure is smaller in all kernels so far.
_SIZE: Final = 512
_MICROSECOND: Final = 1e-6
#: The number of the socket option, or None if the system does not have the option.
_OPTION: Final[int | None] = getattr(socket, "TCP_INFO", None)


class TcpInfo(NamedTuple):
    """The state of a connection at its sender. A value is None if the kernel does not provide it.

    Times are in seconds. Totals count from the start of the connection. `busy_s` is the time in which data were unsent
    or not acknowledged. It includes `rwnd_limited_s`, in which the receiver's window was full because the receiver did
    not read fast enough. It also includes `sndbuf_limited_s`, in which the sender's buffer in the kernel was too small.
    """

    rtt_s: float | None = None
    #: The shortest round trip of the last minutes. If `rtt_s` is much longer, data queue in the network.
    min_rtt_s: float | None = None
    busy_s: float | None = None
    rwnd_limited_s: float | None = None
    sndbuf_limited_s: float | None = None
    #: The number of packets that were sent again.
    retransmits: int | None = None
    #: The latest measured rate at which data reached the receiver, in bytes/s.
    delivery_rate: int | None = None
    #: Whether the sender had too little data to send when the kernel measured `delivery_rate`.
    app_limited: bool | None = None


def parse_tcp_info(data: bytes) -> TcpInfo:
    """Return the values of a `struct tcp_info` (linux/tcp.h). What an older kernel does not return is None."""
    flags = _number(data, "B", 7)
    rate = _number(data, "Q", 160)
    return TcpInfo(
        rtt_s=_seconds(_number(data, "I", 68)),
        min_rtt_s=_seconds(_known(_number(data, "I", 148))),
        busy_s=_seconds(_number(data, "Q", 168)),
        rwnd_limited_s=_seconds(_number(data, "Q", 176)),
        sndbuf_limited_s=_seconds(_number(data, "Q", 184)),
        retransmits=_number(data, "I", 100),
        delivery_rate=rate,
        app_limited=None if rate is None or flags is None else bool(flags & 1),
    )


def read_tcp_info(sock: LinkSocket) -> TcpInfo | None:
    """Return the state of a socket's connection, or None for a closed socket or a system without TCP_INFO.

    Any thread may call this function. It changes nothing.
    """
    if _OPTION is not None:
        with suppress(OSError, ValueError):
            return parse_tcp_info(sock.getsockopt(socket.IPPROTO_TCP, _OPTION, _SIZE))
    return None


def _number(data: bytes, kind: str, offset: int) -> int | None:
    """Return the number at an offset, or None if the data are too short to contain the number."""
    layout = struct.Struct(f"={kind}")
    return layout.unpack_from(data, offset)[0] if len(data) >= offset + layout.size else None


def _known(value: int | None) -> int | None:
    """Return the kernel's shortest time, or None for 0xFFFFFFFF, which means that no time was measured yet."""
    return None if value == 0xFFFFFFFF else value


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds * _MICROSECOND
