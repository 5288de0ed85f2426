"""The driver's side of the server process that forks TaskManagers, see `fork_server`. There is one server for the life
of this process, or until it has been idle for a minute."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from headgate.runtime.launch.framing import framed

#: How a child ended: its process, 0 if it could not be started, and its exit code, negative for a signal.
ENDED: Final = struct.Struct("<qi")
#: Seconds without a child and without a request, after which the server ends.
_IDLE: Final = 60.0
#: The name of a TaskManager's process in `ps`, before its index.
PROCESS_NAME: Final = "headgate-tm-"


class Fork:
    """One TaskManager process. Raises OSError if it cannot be started."""

    def __init__(self, payload: bytes, index: int, count: int, host: str) -> None:
        self._given = framed(json.dumps(process_settings()).encode()) + framed(payload)
        self._number = next(_numbers)
        read, self._stdin = os.pipe()
        self._status, status = os.pipe()
        streams = [read, _stream(1), _stream(2), status]
        try:
            request = {"start": self._number, "index": index, "count": count, "host": host}
            self._control = server.send(request, streams)
        except BaseException:
            os.close(self._stdin)
            os.close(self._status)
            raise
        finally:
            for descriptor in streams:
                os.close(descriptor)

    def wait(self) -> tuple[int, int] | None:
        """Send the child its settings and payload, and wait until it has ended. Returns its process and exit code as in
        `ENDED`, None if that is not known because the server has ended; the child then ends, too."""
        with suppress(OSError):  # it may die at once; its exit code says more
            _write(self._stdin, self._given)
        status = b""
        while len(status) < ENDED.size and (part := os.read(self._status, ENDED.size - len(status))):
            status += part
        os.close(self._status)
        os.close(self._stdin)
        return ENDED.unpack(status) if len(status) == ENDED.size else None

    def kill(self) -> None:
        """Kill the process. Does nothing when it has ended."""
        with suppress(OSError):
            self._control.sendall(json.dumps({"kill": self._number}).encode())


def process_settings() -> dict[str, Any]:
    """Return the settings that a child takes from this process as it is now. If the working folder was removed, the
    child keeps the server's."""
    folder = None
    with suppress(FileNotFoundError):
        folder = os.getcwd()
    return {
        "environ": {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        "path": [folder or os.curdir for folder in sys.path],
        "folder": folder,
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
    }


class _Server:
    """The client of the fork server. Any thread may use it. A process that was forked from this one gets a server of
    its own. `_lock` protects the socket and the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server's process, whose imports take half a second, unless it runs. Returns at once."""
        with self._lock:
            if not self._is_mine or (self._process is not None and self._process.poll() is not None):
                self._control = self._start()

    def close(self) -> None:
        """At the end of the program: end the server's process. TaskManagers that are left end with their driver."""
        if self._control is not None and self._process is not None and self._is_mine:
            self._control.close()
            self._process.kill()
            with suppress(KeyboardInterrupt):  # an interrupt at the end needs no traceback
                self._process.wait()

    def send(self, request: dict[str, Any], descriptors: Sequence[int]) -> socket.socket:
        """Send a request, and return the socket for further messages on the same child."""
        data = [json.dumps(request).encode()]
        with self._lock:
            if self._control is not None and self._is_mine:
                with suppress(ConnectionError):  # the server was idle and has ended, or was killed
                    socket.send_fds(self._control, data, descriptors)
                    return self._control
            self._control = self._start()
            socket.send_fds(self._control, data, descriptors)
            return self._control

    @property
    def _is_mine(self) -> bool:
        """Whether this process started the server, and not the process that this one was forked from."""
        return self._owner == os.getpid()

    def _start(self) -> socket.socket:
        if self._control is not None and self._process is not None:  # of a server that has ended, or of another process
            self._control.close()
            self._process.poll()
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        output, errors = _stream(1), _stream(2)
        try:
            self._process = subprocess.Popen(
                command(_IDLE),
                stdin=theirs.fileno(),
                stdout=output,
                stderr=errors,
                env=_own_environ(),
                process_group=0,  # Ctrl-C is the driver's to handle
            )
        finally:
            theirs.close()
            os.close(output)
            os.close(errors)
        self._owner = os.getpid()
        return control


def command(idle: float) -> list[str]:
    """Of a server that ends after so many seconds with nothing to do. With -P it imports nothing from the working
    folder, where anybody's files may be."""
    return [sys.executable, "-P", "-m", "headgate.runtime.launch.fork_server", str(idle)]


def _own_environ() -> dict[str, str]:
    """The server's: it imports this package, also where the driver found it by "", which is the working folder."""
    environ: dict[str, str] = process_settings()["environ"]
    root = str(Path(__file__).resolve().parents[2])
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, [environ["PYTHONPATH"], root]))}


_numbers = itertools.count(1)
server = _Server()
atexit.register(server.close)


def _stream(number: int) -> int:
    """Return a copy of this process's output as it is now; /dev/null if it is closed."""
    try:
        return os.dup(number)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _write(pipe: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]
