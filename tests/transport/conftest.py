"""Network threads for tests: started on demand, stopped at the end, with nothing of theirs left open."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import psutil
import pytest

from headgate.protocol.handshake import Credentials
from headgate.runtime.master import certificates
from headgate.transport import sockets
from headgate.transport.network_thread import NetworkThread

T = TypeVar("T")
#: Longer than anything takes; a test that waits this long has failed.
PATIENCE = 60.0

#: Of one attempt: where links are not encrypted, and where they are, at the driver and at a TaskManager.
PLAIN = Credentials(b"j" * 16, 1, b"secret")
OF_DRIVER, OF_TASKMANAGER = (dataclasses.replace(PLAIN, identity=identity) for identity in certificates.issue())

MakeNetwork = Callable[[str], NetworkThread]


@pytest.fixture
def network_of(caplog: pytest.LogCaptureFixture) -> Iterator[MakeNetwork]:
    """Makes running network threads. At the end they stop, no file descriptor is left, and none logged an error."""
    before = psutil.Process().num_fds()
    made: list[NetworkThread] = []

    def make(name: str) -> NetworkThread:
        made.append(NetworkThread(name))
        made[-1].start()
        return made[-1]

    with caplog.at_level(logging.WARNING):
        yield make
    for network in made:
        network.stop(PATIENCE)
    assert psutil.Process().num_fds() <= before, "a file descriptor was left open"  # earlier tests' may close late
    assert [record.getMessage() for record in caplog.records] == []


@pytest.fixture
def network(network_of: MakeNetwork) -> NetworkThread:
    return network_of("test")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not come soon does not come."""
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT", 0.2)


@pytest.fixture
def five_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries to connect begin after 0, 0.05, 0.15, 0.35 and 0.75 s, and end long before the deadline."""
    monkeypatch.setattr(sockets, "HANDSHAKE_TIMEOUT", 1.2)


def on(network: NetworkThread, work: Callable[[], T]) -> T:
    """Run `work` on the network thread and wait for what it returns."""
    done = threading.Event()
    results: list[T] = []

    def run() -> None:
        try:
            results.append(work())
        finally:
            done.set()

    network.post(run)
    assert done.wait(PATIENCE), "the network thread does not answer"
    return results[0]


def wait_for_free_turn(network: NetworkThread) -> None:
    """Wait until the network thread has done its work and waits itself."""
    on(network, lambda: None)
    with network._turn:
        pass
