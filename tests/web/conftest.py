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
Servers = dict[tuple[str, str | None], Served]


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """The servers of all tests of this process, by address and token."""
    started: Servers = {}
    yield started
    for served in started.values():
        served.server.stop()


@pytest.fixture
def serve(servers: Servers) -> Iterator[Serve]:
    """Return a function that serves jobs: `serve(job, ...)`, with `host` and `token`, and `fresh` for a new server."""
    fresh_ones: list[Served] = []

    def start(*jobs: FakeJob, host: str = "127.0.0.1", token: str | None = None, fresh: bool = False) -> Served:
        served = None if fresh else servers.get((host, token))
        if served is None:
            board = JobBoard()
            served = Served(board, WebServer(board, host, 0, token))
            served.server.start()
            fresh_ones.append(served)
        served.board.clear()
        served.board.report = None
        for job in jobs:
            served.board.add(job)
        return served

    yield start
    for served in fresh_ones:
        served.server.stop()


@pytest.fixture(scope="session", autouse=True)
def common(servers: Servers) -> None:
    """Start the servers that most tests use before the first test, so that no test leaves them behind."""
    for host, token in (("127.0.0.1", None), ("127.0.0.1", TOKEN)):
        board = JobBoard()
        served = servers[host, token] = Served(board, WebServer(board, host, 0, token))
        served.server.start()
