"""Somebody in the middle: between TaskManagers, and between them and the driver, who relays and changes what he likes.

He stands on one of two grounds. In *namespaces* the driver and TaskManager 0 are one machine, TaskManager 1 is another,
and each reaches the other through him alone. On *loopback* TaskManagers are threads that dial his ports; that needs no
rights.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

import headgate as hg
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from headgate.runtime.launch.framing import framed
from headgate.runtime.launch.local import _exit_reason
from headgate.runtime.taskmanager import data_links, driver_link
from tests.hosts import Host, hosts

T = TypeVar("T")
_ROOT = Path(__file__).parents[2]
_TIMEOUT = 60.0

CONTROL, DATA = "control", "data"
#: What he makes of bytes on their way; kept for one direction of one connection.
Edit = Callable[[bytes], bytes]
#: What he does with a connection of a kind: his own end of it, and how to reach who was dialled.
Meddle = Callable[[str, socket.socket, Callable[[], socket.socket]], None]


def relay(near: socket.socket, far: socket.socket, upstream: Edit = bytes, downstream: Edit = bytes) -> None:
    """Carry what the dialler says (`upstream`) and what it is told (`downstream`) until both have ended."""
    back = threading.Thread(target=_carry, args=(far, near, downstream), daemon=True)
    back.start()
    _carry(near, far, upstream)
    back.join()


def _carry(source: socket.socket, target: socket.socket, edit: Edit) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(edit(data))
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Middle:
    """Takes the connections of the listeners that he is given, each on a thread."""

    def __init__(self, meddle: Meddle) -> None:
        self._meddle = meddle
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        #: Kinds of connections that came.
        self.came: list[str] = []

    def stand(self, listener: socket.socket, kind: str, onwards: Callable[[], socket.socket]) -> None:
        self._listeners.append(listener)
        self._run(self._accept, listener, kind, onwards)

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self, listener: socket.socket, kind: str, onwards: Callable[[], socket.socket]) -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                self.came.append(kind)
                self._run(self._take, kind, sock, onwards)

    def _take(self, kind: str, sock: socket.socket, onwards: Callable[[], socket.socket]) -> None:
        with sock, suppress(OSError):
            self._meddle(kind, sock, onwards)

    def leave(self) -> None:
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self._threads:
            thread.join(_TIMEOUT)


class Loopback:
    """TaskManagers are threads; whom they dial is he."""

    options: dict[str, Any] = {"bind_host": "127.0.0.1"}  # noqa: RUF012

    def __init__(self, middle: Middle, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deployment = hg.LocalDeployment(2, processes=False)
        self._middle = middle
        for module, kind in ((data_links, DATA), (driver_link, CONTROL)):
            monkeypatch.setattr(module, "Dial", self._diverted(module.Dial, kind))

    def _diverted(self, dial: Any, kind: str) -> Callable[..., Any]:
        def diverted(network: Any, address: tuple[str, int], **others: Any) -> Any:
            listener = socket.create_server(("127.0.0.1", 0))
            self._middle.stand(listener, kind, lambda: socket.create_connection(address, _TIMEOUT))
            return dial(network, listener.getsockname(), **others)

        return diverted

    def run(self, work: Callable[[], T]) -> T:
        return work()

    def close(self) -> None: ...


class Namespaces:
    """`near` has the driver and TaskManager 0, `far` TaskManager 1, each on an Ethernet of its own. There the other's
    address is his."""

    NEAR, FAR = "10.77.0.1", "10.77.0.2"
    PORTS = 7000, 7001
    options: dict[str, Any] = {"port_range": PORTS}  # noqa: RUF012

    def __init__(self, middle: Middle) -> None:
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.near, self._by_near = stack.enter_context(hosts(self.NEAR, self.FAR))
            self.far, self._by_far = stack.enter_context(hosts(self.FAR, self.NEAR))
            self._stack = stack.pop_all()
        for port, kind in ((7000, CONTROL), (7001, DATA)):  # the driver listens first
            self._stand(middle, self._by_far, self._by_near, (self.NEAR, port), kind)
        self._stand(middle, self._by_near, self._by_far, (self.FAR, 7000), DATA)
        self.deployment = _TwoMachines(self)

    def _stand(self, middle: Middle, here: Host, there: Host, address: tuple[str, int], kind: str) -> None:
        listener = here.run(lambda: socket.create_server(address))
        middle.stand(listener, kind, lambda: there.run(lambda: socket.create_connection(address, _TIMEOUT)))

    def run(self, work: Callable[[], T]) -> T:
        return self.near.run(work)

    def close(self) -> None:
        self._stack.close()


class _TwoMachines(hg.LocalDeployment):
    """TaskManager 0 beside the driver, TaskManager 1 on the other machine."""

    def __init__(self, ground: Namespaces) -> None:
        super().__init__(2, processes=True)
        self._ground = ground

    def warm_up(self) -> None:
        """A process that forks others is on one machine only."""

    def bind_hosts(self) -> str:
        return Namespaces.NEAR

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        payload, ground = framed(spec.pickled()), self._ground
        near = ground.near.run(lambda: _started(payload, 0, Namespaces.NEAR))
        far = ground.far.run(lambda: _started(payload, 1, Namespaces.FAR))
        return _Machines([near, far], spec.control_address, on_exit)


def _started(payload: bytes, index: int, host: str) -> subprocess.Popen[bytes]:
    program = f"import sys; from headgate.runtime.launch import child; sys.exit(child.main({index}, 2, {host!r}))"
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, cwd=_ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    assert process.stdin is not None
    process.stdin.write(payload)
    process.stdin.flush()
    return process


class _Machines:
    can_kill = True

    def __init__(self, processes: list[subprocess.Popen[bytes]], driver: tuple[str, int], on_exit: OnExit) -> None:
        self._processes = processes
        self._driver = driver
        self._watchers = [threading.Thread(target=self._watch, args=(index, on_exit)) for index in range(2)]
        for watcher in self._watchers:
            watcher.start()

    def _watch(self, index: int, on_exit: OnExit) -> None:
        process = self._processes[index]
        code = process.wait()
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        on_exit(index, _exit_reason((process.pid, code), self._driver))

    def cancel(self) -> None:
        for process in self._processes:
            process.kill()

    def join(self, timeout: float) -> bool:
        for watcher in self._watchers:
            watcher.join(timeout / 2)
        return not any(watcher.is_alive() for watcher in self._watchers)

    def why_waiting(self) -> str:
        return ""
