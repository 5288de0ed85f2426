"""A server of lines for the socket receiver of Spark Streaming."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

#: Seconds between two pieces of lines, and between two looks whether the server has ended.
_PIECE: Final = 0.01


@contextmanager
def line_server(rate: int) -> Iterator[int]:
    """Offer `rate` lines/s to the first client on loopback, and yield the port.

    A client that reads slowly gets the lines later, but all of them.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_PIECE)
        ended = threading.Event()
        thread = threading.Thread(target=_serve, args=(server, rate, ended), name="line-server", daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def _serve(server: socket.socket, rate: int, ended: threading.Event) -> None:
    client = _accepted(server, ended)
    if client is None:
        return
    with client, suppress(ConnectionError):  # the client has gone
        client.settimeout(_PIECE)
        began, sent, rest = time.monotonic(), 0, b""
        while not ended.wait(0 if rest else _PIECE):
            due = round((time.monotonic() - began) * rate)
            if not rest:
                rest, sent = b"row\n" * (due - sent), due
            with suppress(TimeoutError):
                rest = rest[client.send(rest) :]


def _accepted(server: socket.socket, ended: threading.Event) -> socket.socket | None:
    """Return the first client, or None if the server has ended before one came."""
    while not ended.is_set():
        with suppress(TimeoutError):
            return server.accept()[0]
    return None
