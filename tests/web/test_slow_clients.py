"""Clients that send or read too slowly, and too many of them, do not keep the page from others."""

from __future__ import annotations

import socket

import pytest

from headgate.web.http_connection import HttpConnection
from tests.runtime.jobs import eventually
from tests.web.conftest import Serve, Served
from tests.web.fake_job import slow_job

#: More connections than the server accepts.
MANY = 120


def connected(served: Served, text: str, received: int | None = None) -> socket.socket:
    """Return a connection on which `text` was sent. Its system keeps at most about `received` bytes of the answer."""
    client = socket.socket()
    if received is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received)
    client.connect((served.server.host, served.server.port))
    client.sendall(text.replace("\n", "\r\n").encode())
    return client


def answers(served: Served, path: str = "/jobs") -> bool:
    try:
        return served.get(path).status == 200
    except OSError:
        return False


@pytest.mark.parametrize("begin", ["", "GET /jobs HTTP/1.1\nHos", "GET /jobs HTTP/1.1\nHost: localhost\n\nGET /jo"])
def test_a_request_that_does_not_arrive_ends(serve: Serve, monkeypatch: pytest.MonkeyPatch, begin: str) -> None:
    monkeypatch.setattr(HttpConnection, "arrives", 1.0)
    served = serve(slow_job(), fresh=True)
    clients = [connected(served, begin) for _ in range(MANY)]
    eventually(lambda: answers(served))
    for client in clients:
        client.settimeout(30)
        while client.recv(1 << 16):
            pass
        client.close()


def test_a_client_that_reads_nothing_loses_its_connection(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "reads", 1.0)
    job = slow_job(options={f"option_{number}": "x" * 1000 for number in range(4000)})
    served = serve(job, fresh=True)
    client = connected(served, f"GET /jobs/{job.id} HTTP/1.1\nHost: localhost\n\n", received=2048)
    client.settimeout(30)

    def is_closed() -> bool:
        try:
            client.send(b"x")
        except OSError:
            return True
        return False

    eventually(is_closed)
    received = 0
    try:
        while part := client.recv(1 << 16):
            received += len(part)
    except ConnectionResetError:
        pass
    assert received < 4_000_000, "the server gave up before the whole answer was read"
    client.close()
