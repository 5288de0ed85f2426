"""What the kernel says about a connection: parsed from bytes of any length, and read from real sockets."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from headgate.transport.tcp_info import TcpInfo, parse_tcp_info, read_tcp_info
from tests.runtime.jobs import eventually

#: `struct tcp_info` of linux/tcp.h up to tcpi_sndbuf_limited: 8 bytes, 24 numbers of 4, 4 of 8, 6 of 4, 4 of 8.
LAYOUT = struct.Struct("=8B24I4Q6I4Q")


def made(flags: int = 0, **values: int) -> bytes:
    """The bytes of a structure with some values, by their place in `LAYOUT` behind the first 8 bytes."""
    numbers = [0] * (24 + 4 + 6 + 4)
    places = {"rtt": 15, "retransmits": 23, "min_rtt": 31, "rate": 34, "busy": 35, "rwnd": 36, "sndbuf": 37}
    for name, value in values.items():
        numbers[places[name]] = value
    return LAYOUT.pack(*[0] * 7, flags, *numbers)


def test_all_values_are_found_in_a_whole_structure() -> None:
    data = made(
        flags=1, rtt=40_000, retransmits=7, min_rtt=39_000, rate=5_000_000, busy=9_000_000, rwnd=3_000_000,
        sndbuf=1_000_000,
    )  # fmt: skip
    assert len(data) == 192
    info = parse_tcp_info(data)
    assert info[:5] == pytest.approx((0.04, 0.039, 9.0, 3.0, 1.0))
    assert (info.retransmits, info.delivery_rate, info.app_limited) == (7, 5_000_000, True)
    assert parse_tcp_info(data + b"more than is known") == parse_tcp_info(data)


def test_a_kernel_that_gives_fewer_bytes_leaves_values_unknown() -> None:
    data = made(rtt=1_000, retransmits=2, min_rtt=900, rate=10, busy=1, rwnd=1, sndbuf=1)
    assert parse_tcp_info(data[:104]) == TcpInfo(rtt_s=0.001, retransmits=2)
    assert parse_tcp_info(data[:168])[:2] == pytest.approx((0.001, 0.0009))
    assert parse_tcp_info(data[:168]).app_limited is False
    assert parse_tcp_info(data[:168]).busy_s is None
    assert parse_tcp_info(b"") == TcpInfo()


def test_a_least_round_trip_that_was_not_measured_is_unknown() -> None:
    assert parse_tcp_info(made(min_rtt=0xFFFFFFFF)).min_rtt_s is None


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        with one, other:
            yield one, other


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is an option of Linux")
def test_a_receiver_that_does_not_read_limits_its_sender(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sender.setblocking(False)

    def is_limited() -> bool:
        try:
            sender.send(bytes(1 << 20))
        except BlockingIOError:
            pass
        info = read_tcp_info(sender)
        assert info is not None
        assert info.rtt_s is not None
        return (info.rwnd_limited_s or 0.0) > 0

    eventually(is_limited)


def test_what_is_no_tcp_connection_says_nothing() -> None:
    one, other = socket.socketpair()
    one.close()
    other.close()
    assert read_tcp_info(one) is None
