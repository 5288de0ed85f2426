"""A program that finds the ports of another job is refused, and the job goes on."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import headgate as hg
from headgate.protocol import handshake
from headgate.protocol.handshake import CONTROL_LINK, DATA_LINK, Credentials
from headgate.transport import sockets
from tests.runtime.jobs import endless, environment, keyed, wait_until_running

NONCE = bytes(handshake.NONCE_BYTES)


@pytest.fixture
def others() -> frozenset[int]:
    """Ports on which this process listens before the job starts, such as those of a Spark session."""
    return frozenset(listening_ports())


@pytest.fixture
def job(others: frozenset[int]) -> Iterator[hg.JobHandle]:  # noqa: ARG001  # looked at before
    env = environment(heartbeat_timeout=30)
    keyed(endless(env, rate=1000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    yield job
    rows = job.metrics()["rows_in"]
    wait_until_running(job, rows + 100)
    job.cancel()


@pytest.fixture
def ports(job: hg.JobHandle, others: frozenset[int]) -> list[int]:  # noqa: ARG001  # looked at while it runs
    """Return the ports on which the job listens."""
    return [port for port in listening_ports() if port not in others]


def credentials(handle: hg.JobHandle, **other: Any) -> Credentials:
    """Return the job's credentials with these values replaced."""
    return dataclasses.replace(handle._master._attempt.credentials, **other)


def kind_of(port: int, right: Credentials) -> int:
    """Which kind of link a port takes: a right hello of the other kind is refused."""
    for kind in (CONTROL_LINK, DATA_LINK):
        with connected(port) as sock:
            sock.sendall(handshake.Dialler(right, kind, 1, NONCE).hello)
            if answer(sock)[:1] == b"\x01":
                return kind
    raise AssertionError(f"port {port} takes no link")


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < handshake.ANSWER_BYTES and (piece := sock.recv(handshake.ANSWER_BYTES)):
        data += piece
    return data


def is_closed(sock: socket.socket) -> bool:
    """Waits for the other end to close."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def listening_ports() -> list[int]:
    return [c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN]


def test_a_wrong_secret(job: hg.JobHandle, ports: list[int]) -> None:
    """It is not told until it has failed to prove itself, and can check that the other end knows the secret."""
    wrong = credentials(job, secret=bytes(32))
    for port in ports:
        kind = kind_of(port, credentials(job))
        with connected(port) as sock:
            dialler = handshake.Dialler(wrong, kind, 1, NONCE)
            sock.sendall(dialler.hello)
            reply = answer(sock)
            with pytest.raises(hg.HeadgateError, match="does not know this job's secret"):
                dialler.prove(reply)
            sock.sendall(bytes(handshake.PROOF_BYTES))
            assert is_closed(sock)


@pytest.mark.parametrize(
    ("other", "reason"), [({"attempt": 7}, b"attempt 7, but the listener has 0"), ({"job": bytes(16)}, b"another job")]
)
def test_a_survivor_of_another_attempt_or_job(
    job: hg.JobHandle, ports: list[int], other: dict[str, Any], reason: bytes
) -> None:
    for port in ports:
        kind = kind_of(port, credentials(job))
        with connected(port) as sock:
            sock.sendall(handshake.Dialler(credentials(job, **other), kind, 1, NONCE).hello)
            reply = answer(sock)
            assert reply[:1] == b"\x00"
            assert reply[1:].rstrip(b"\x00") == reason
            assert is_closed(sock)


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8, bytes(1000), b"\xff" * 100_000])
def test_garbage(ports: list[int], garbage: bytes) -> None:
    for port in ports:
        with connected(port) as sock:
            try:
                sock.sendall(garbage)
                while sock.recv(4096):
                    pass
            except (ConnectionResetError, BrokenPipeError):
                pass


def test_a_number_that_no_taskmanager_has(job: hg.JobHandle, ports: list[int]) -> None:
    """It knows the secret, and is still no part of the job; a second TaskManager 0 is neither."""
    right = credentials(job)
    control = next(port for port in ports if kind_of(port, right) == CONTROL_LINK)
    for number in (0, 99):
        with connected(control) as sock:
            dialler = handshake.Dialler(right, CONTROL_LINK, number, NONCE)
            sock.sendall(dialler.hello)
            sock.sendall(dialler.prove(answer(sock)))
            assert is_closed(sock)


def test_silence_and_drips_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch, others: frozenset[int]) -> None:
    """The deadline is for the whole handshake: a byte now and then does not put it off."""
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT", 2.0)  # also of the job's own handshakes
    env = environment()
    keyed(endless(env, rate=1000)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    hello = handshake.Dialler(credentials(job), DATA_LINK, 1, NONCE).hello
    for port in set(listening_ports()) - others:
        with connected(port) as silent, connected(port) as dripping:
            ended = threading.Event()
            dripper = threading.Thread(target=_drip, args=(dripping, hello, ended))
            dripper.start()
            assert is_closed(silent)
            dripper.join(60)
            assert ended.is_set()
    wait_until_running(job, job.metrics()["rows_in"] + 100)
    job.cancel()


def _drip(sock: socket.socket, data: bytes, ended: threading.Event) -> None:
    try:
        for byte in data:
            sock.sendall(bytes([byte]))
            if ended.wait(0.1):
                return
    except OSError:
        ended.set()
