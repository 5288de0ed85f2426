"""A real HTTP server on loopback that takes rows, and answers as a test wants."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What the server answers to one request. `raw` replaces the whole answer."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    raw: bytes | None = None


@dataclass(frozen=True)
class Received:
    """A request: when it came, its path, headers and body."""

    at: float
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def rows(self) -> list[dict[str, Any]]:
        if self.headers["Content-Type"] == "application/json":
            return list(json.loads(self.body))
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def key(self) -> str:
        return self.headers["Idempotency-Key"]


class Service:
    """`received` has all requests in the order in which they came, also those that get an error.

    `answers` are those of the next requests; after them, all get 200. While `is_open` is not set, requests wait.
    `_changed` protects the lists.
    """

    def __init__(self, port: int = 0, certificate: Path | None = None) -> None:
        self.received: list[Received] = []
        self.answers: list[Answer] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.connections = 0
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet for each answer
            timeout = 30

            def setup(self) -> None:
                super().setup()
                with service._changed:
                    service.connections += 1
                    service._sockets.add(self.connection)

            def finish(self) -> None:
                with service._changed:
                    service._sockets.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if len(body) < int(self.headers["Content-Length"]):
                    self.close_connection = True  # the sink has cut the connection
                    return
                answer = service._take(Received(time.monotonic(), self.path, dict(self.headers), body))
                service.is_open.wait()
                if answer.raw is not None:
                    self.wfile.write(answer.raw)
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            allow_reuse_address = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Say nothing: the sink may cut a connection."""

        self._server = Server(("127.0.0.1", port), Handler)
        scheme = "http"
        if certificate is not None:
            scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def _take(self, received: Received) -> Answer:
        with self._changed:
            self.received.append(received)
            self._changed.notify_all()
            return self.answers.pop(0) if self.answers else Answer()

    def wait_for(self, requests: int, timeout: float = 30.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= requests, timeout), self.received

    def rows(self, path: str | None = None) -> list[dict[str, Any]]:
        with self._changed:
            return [row for each in self.received if path in (None, each.path) for row in each.rows]

    def close(self) -> None:
        """Cut all connections, as the end of a process does."""
        self.is_open.set()
        self._server.shutdown()
        self._thread.join()
        with self._changed:
            for each in self._sockets:
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)
        self._server.server_close()


@contextmanager
def running(port: int = 0, certificate: Path | None = None) -> Iterator[Service]:
    service = Service(port, certificate)
    try:
        yield service
    finally:
        service.close()
