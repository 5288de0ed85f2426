"""A server of lines for the socket receiver of Spark Streaming."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

#: Seconds between two pieces. A receiver that connects later than `_CONNECTS` seconds gets nothing.
_PIECE: Final = 0.01
_CONNECTS: Final = 120.0


@contextmanager
def line_server(rate: int) -> Iterator[int]:
    """Offer `rate` lines/s to the first client on loopback, and yield the port.

    A client that reads slowly gets the lines later, but all of them.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_CONNECTS)
        ended = threading.Event()
        thread = threading.Thread(target=_serve, args=(server, rate, ended), name="line-server", daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            server.close()
            thread.join()


def _serve(server: socket.socket, rate: int, ended: threading.Event) -> None:
    with suppress(OSError):  # the client has gone, or none came
        client, _ = server.accept()
        with client:
            client.settimeout(_PIECE)
            began, sent, rest = time.monotonic(), 0, b""
            while not ended.wait(0 if rest else _PIECE):
                due = round((time.monotonic() - began) * rate)
                if not rest:
                    rest, sent = b"row\n" * (due - sent), due
                with suppress(TimeoutError):
                    rest = rest[client.send(rest) :]
