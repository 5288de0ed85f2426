"""The source of lines from a TCP server, with a real server on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

import headgate as hg
from headgate.connectors import socket_source
from headgate.connectors.collect_sink import CollectSink
from tests.runtime.jobs import eventually


class TextServer:
    """A server that listens. `accept` returns the next connection."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(60)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []

    def accept(self) -> socket.socket:
        connection, _ = self._listener.accept()
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        for open_socket in (self._listener, *self._connections):
            open_socket.close()


@pytest.fixture
def server() -> Iterator[TextServer]:
    server = TextServer()
    yield server
    server.close()


def run(server: TextServer, processes: bool = False) -> tuple[hg.JobHandle, CollectSink]:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=processes))
    rows = hg.sinks.collect()
    env.from_source(hg.sources.socket_lines("127.0.0.1", server.port)).filter("value <> ''").sink_to(rows)
    return env.execute_async(), rows


def test_a_line_without_end_is_refused(server: TextServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_source, "_LONGEST_LINE", 1 << 17)
    job, rows = run(server)
    connection = server.accept()
    connection.sendall(b"one\n" + b"x" * (1 << 16))
    eventually(lambda: rows.rows == 1, timeout=60)
    with suppress(OSError):  # the source closes the connection
        connection.sendall(b"x" * (1 << 20))
    with pytest.raises(hg.SourceError, match="line 2 is longer than 131072 bytes"):
        job.wait(60)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_lines_come_as_they_are_sent_until_the_server_closes(server: TextServer, processes: bool) -> None:
    job, rows = run(server, processes)
    connection = server.accept()
    connection.sendall(b"one\r\ntwo\n\nth")
    eventually(lambda: rows.rows == 2, timeout=60)
    connection.sendall("ree\nvier é".encode())
    eventually(lambda: rows.rows == 3, timeout=60)
    connection.close()
    assert job.wait(60).rows_in == 5
    assert rows.to_table()["value"].to_pylist() == ["one", "two", "three", "vier é"]


def test_many_lines_come_complete_and_in_order(server: TextServer) -> None:
    job, rows = run(server)
    connection = server.accept()
    lines = [f"line {number} " + "x" * (number % 2000) for number in range(3000)]
    connection.sendall("\n".join(lines).encode())
    connection.close()
    job.wait(60)
    assert rows.to_table()["value"].to_pylist() == lines


def test_a_cancelled_job_closes_the_connection(server: TextServer) -> None:
    job, _ = run(server)
    connection = server.accept()
    job.cancel()
    connection.settimeout(60)
    assert connection.recv(1) == b""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts no connection: others already fill the listener's queue."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
        yield port


def test_a_cancelled_job_does_not_wait_for_a_server_that_does_not_answer(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_source, "_CONNECT_TIMEOUT", 600.0)

    def dialling() -> int:
        connections = psutil.Process().net_connections("tcp")
        return sum(c.status == psutil.CONN_SYN_SENT and c.raddr[1] == silent_port for c in connections)

    before = dialling()
    assert before
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(1, processes=False))
    env.from_source(hg.sources.socket_lines("127.0.0.1", silent_port)).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: dialling() == before + 1, timeout=60)
    job.cancel()
    eventually(lambda: not any(thread.name.startswith("headgate-fetcher") for thread in threading.enumerate()))
    with pytest.raises(hg.JobCancelled) as cancelled:
        job.wait(60)
    assert "did not return" not in str(cancelled.value)


def test_a_line_that_is_not_utf8_fails_the_job(server: TextServer) -> None:
    job, _ = run(server)
    connection = server.accept()
    connection.sendall(b"a\nb\n\xff\xfe\n")
    with pytest.raises(hg.SourceError, match=r"127\.0\.0\.1:\d+: line 3: it is not UTF-8"):
        job.wait(60)


def test_a_server_that_is_not_there_fails_the_job(server: TextServer) -> None:
    server.close()
    job, _ = run(server)
    with pytest.raises(hg.SourceError, match="Connection refused; check that the server runs"):
        job.wait(60)


@pytest.mark.parametrize(("host", "port"), [("localhost", 0), ("localhost", "80"), ("localhost", True), ("", 80)])
def test_impossible_addresses_are_refused(host: str, port: int) -> None:
    with pytest.raises(hg.ConfigError, match="socket_lines: "):
        hg.sources.socket_lines(host, port)
