"""A line between two ends on loopback, with a limited rate in one direction and a delay in both directions."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from types import TracebackType

_TIMEOUT = 60.0
#: Bytes of a chunk: few compared with the bytes in flight, so that the time of one chunk on the line hardly counts.
_CHUNK = 8 << 10


class DelayLine:
    """A line from a client at `port` to a server at `target`, for one connection. Use it as a context manager.

    Bytes from `target` pass at `rate` bytes/s. Each direction takes half of `round_trip` seconds, which may change. The
    line itself does not bound the bytes in flight; the credit of the ends does.
    """

    def __init__(self, target: int, rate: float, round_trip: float) -> None:
        self._target = target
        self._rate = rate
        self.round_trip = round_trip
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TIMEOUT)
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._connect, name="headgate-delay-line")]

    def __enter__(self) -> DelayLine:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # a close alone does not end the wait in accept
        self._threads[0].join(_TIMEOUT)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(_TIMEOUT)
        for sock in self._sockets:
            sock.close()

    def _connect(self) -> None:
        try:
            near, _ = self._listener.accept()
        except OSError:  # closed before a client connected
            return
        far = socket.create_connection(("127.0.0.1", self._target), _TIMEOUT)
        self._sockets += [near, far]
        for sock in self._sockets:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._carry(near, far, float("inf"))
        self._carry(far, near, self._rate)

    def _carry(self, source: socket.socket, target: socket.socket, rate: float) -> None:
        line: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        for work in (lambda: self._receive(source, line, rate), lambda: _send_delayed(line, target)):
            thread = threading.Thread(target=work, name="headgate-delay-line")
            self._threads.append(thread)
            thread.start()

    def _receive(self, source: socket.socket, line: queue.SimpleQueue[tuple[float, bytes]], rate: float) -> None:
        free_at = 0.0
        chunk = b"."
        while chunk:
            try:
                chunk = source.recv(_CHUNK)
            except OSError:
                chunk = b""
            free_at = max(free_at, time.monotonic()) + len(chunk) / rate
            line.put((free_at + self.round_trip / 2, chunk))


def _send_delayed(line: queue.SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    """Send each chunk to `target` when it is due. An empty chunk ends the direction."""
    while True:
        at, chunk = line.get()
        time.sleep(max(0.0, at - time.monotonic()))
        try:
            if chunk:
                target.sendall(chunk)
                continue
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        return
