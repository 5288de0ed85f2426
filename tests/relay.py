"""A relay of connections on loopback, which a test can cut."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

#: Closes a socket with a reset, as a firewall may do.
_RESET: Final = struct.pack("ii", 1, 0)


class Relay:
    """Passes connections to its port on to the port `target`.

    `_lock` protects `_ends` and `_is_cut`.
    """

    def __init__(self) -> None:
        self.target = 0
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._is_cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Reset all connections, and refuse new ones within the block."""
        self._set_cut(True)
        try:
            yield
        finally:
            self._set_cut(False)

    def _set_cut(self, is_cut: bool) -> None:
        with self._lock:
            self._is_cut = is_cut
            for end in self._ends if is_cut else ():
                _reset(end)

    def close(self) -> None:
        """Cut all connections, and end."""
        self._set_cut(True)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the server is down
                _reset(near)
                near.close()
                continue
            pair = threading.Thread(target=self._pass_on, args=(near, far))
            self._threads.append(pair)
            pair.start()

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        """Pass on both ways until one side ends."""
        with self._lock:
            self._ends |= {near, far}
            if self._is_cut:
                _reset(near)
        back = threading.Thread(target=_copy, args=(far, near))
        back.start()
        _copy(near, far)
        back.join()
        with self._lock:
            self._ends -= {near, far}
        near.close()
        far.close()


def _copy(given: socket.socket, taken: socket.socket) -> None:
    with suppress(OSError):
        while data := given.recv(1 << 16):
            taken.sendall(data)
    for end in (given, taken):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _reset(end: socket.socket) -> None:
    """Let the connection end with a reset, once both its threads have left it."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        end.shutdown(socket.SHUT_RDWR)
