"""What the kernel says about a TCP connection (Linux: TCP_INFO): its round trip, and what limits its sender."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Final, NamedTuple

from headgate.transport.link_socket import LinkSocket

#: More bytes than the structure has in any kernel so far.
_SIZE: Final = 512
_MICROSECOND: Final = 1e-6
#: The option's number, None where the system has none.
_OPTION: Final[int | None] = getattr(socket, "TCP_INFO", None)


class TcpInfo(NamedTuple):
    """The state of a connection, as its sender sees it. None: this kernel does not say.

    The totals are from the start of the connection. `busy_s` counts while data were unsent or not acknowledged. In
    `rwnd_limited_s` of these the receiver had no room, because it did not read fast enough. In `sndbuf_limited_s` the
    sender's own buffer in the kernel was too small.
    """

    rtt_s: float | None = None
    #: The least round trip of the last minutes. A much longer `rtt_s` says that data queue on the line.
    min_rtt_s: float | None = None
    busy_s: float | None = None
    rwnd_limited_s: float | None = None
    sndbuf_limited_s: float | None = None
    retransmits: int | None = None
    #: Bytes/s that reached the receiver lately, and whether the sender had no more to send.
    delivery_rate: int | None = None
    app_limited: bool | None = None


def parse_tcp_info(data: bytes) -> TcpInfo:
    """Return what a `struct tcp_info` says (linux/tcp.h). Older kernels give fewer bytes, and so fewer values."""
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
    """Return the state of a socket's connection, None for a closed socket and for a system without TCP_INFO.

    Any thread may call it. It changes nothing.
    """
    if _OPTION is not None:
        with suppress(OSError, ValueError):
            return parse_tcp_info(sock.getsockopt(socket.IPPROTO_TCP, _OPTION, _SIZE))
    return None


def _number(data: bytes, kind: str, offset: int) -> int | None:
    """Return the number at an offset, None if the data end before it does."""
    layout = struct.Struct(f"={kind}")
    return layout.unpack_from(data, offset)[0] if len(data) >= offset + layout.size else None


def _known(value: int | None) -> int | None:
    """Return a least time, None for the value that stands for none yet."""
    return None if value == 0xFFFFFFFF else value


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds * _MICROSECOND
