"""`sizing`, small: the line has its rate and delay, and a channel runs over it; and the verdict."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from headgate.bench.exchange import end
from headgate.lab import sizing
from headgate.lab.delay_line import DelayLine
from headgate.lab.sizing import EXCEEDS, SIZES


def _echo(listener: socket.socket) -> None:
    with listener, listener.accept()[0] as sock:
        while data := sock.recv(1 << 16):
            sock.sendall(data)


def test_a_line_takes_its_round_trip_and_its_rate() -> None:
    data = bytes(range(256)) * 400
    listener = socket.create_server(("127.0.0.1", 0))
    echo = threading.Thread(target=_echo, args=(listener,))
    echo.start()
    with DelayLine(listener.getsockname()[1], rate=1e6, round_trip=0.05) as line:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", line.port)) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            back = b""
            while part := sock.recv(1 << 16):
                back += part
        took = time.monotonic() - began
    echo.join()
    assert back == data
    assert took >= 0.05 + len(data) / 1e6


def test_a_line_without_a_client_closes() -> None:
    with DelayLine(1, rate=1e6, round_trip=0.1) as line:
        assert line.port > 0


@pytest.mark.alone
def test_the_default_buffers_do_not_fill_a_line_that_takes_twice_as_many() -> None:
    """Credit for ten buffers fills half of the line. A busy machine can only lower this share, so the bound is safe."""
    few, many = SIZES.values()
    with end("producer", 0) as producer, end("consumer", 1) as consumer:
        shares = [sizing.share_of_line(producer, consumer, size, EXCEEDS, seconds=1.0) for size in (few, many)]
    assert 0.1 < shares[0] <= 0.6, shares
    assert shares[0] < shares[1], shares


@pytest.mark.parametrize(
    ("fits", "exceeds", "many", "met"),
    [(0.9, 0.7, 0.9, True), (0.89, 0.5, 1.0, False), (1.0, 0.71, 1.0, False), (1.0, 0.5, 0.89, False)],
)
def test_verdict_needs_all_three(fits: float, exceeds: float, many: float, met: bool) -> None:
    shares = {("10 buffers", 5.0): [fits], ("10 buffers", 20.0): [exceeds]}
    shares |= {("64 buffers", 5.0): [1.0], ("64 buffers", 20.0): [many]}
    result = sizing.report(shares)
    assert result.met is met
    assert [series.name for series in result.plots[0].series] == ["10 buffers", "64 buffers", "10 / round trip"]
