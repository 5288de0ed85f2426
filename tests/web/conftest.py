"""A server on loopback, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headgate.web.job_board import JobBoard
from headgate.web.web_server import WebServer
from tests.web.fake_job import FakeJob

TOKEN = "0123456789abcdef"


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


@dataclass
class Served:
    """A server with its board."""

    board: JobBoard
    server: WebServer

    def get(self, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=30)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves jobs: `serve(job, ...)`, with `host` and `token`."""
    servers: list[WebServer] = []

    def start(*jobs: FakeJob, host: str = "127.0.0.1", token: str | None = None) -> Served:
        board = JobBoard()
        for job in jobs:
            board.add(job)
        server = WebServer(board, host, 0, token)
        servers.append(server)
        server.start(delay=0.0)
        return Served(board, server)

    yield start
    for server in servers:
        server.stop()
