"""The driver's side of the server process that forks TaskManagers, see `fork_server`.

This process has one server. The server lives as long as this process, or until it has been idle for a minute.
"""

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

#: The report of a child's end. The first number is its process id, or 0 if it could not be started. The second is its
#: exit code; it is negative if a signal ended the child.
ENDED: Final = struct.Struct("<qi")
#: Seconds without a child and without a request, after which the server ends.
_IDLE: Final = 60.0
#: The name of a TaskManager's process in `ps`, before its index.
PROCESS_NAME: Final = "headgate-tm-"


class Fork:
    """One TaskManager process. Raises OSError if the server cannot start; `wait` reports a child that cannot start."""

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
        """Send the child its settings and payload, and wait until the child has ended.

        Returns the child's process id and exit code as in `ENDED`. Returns None if the server has ended, so that they
        are not known. The child then ends, too.
        """
        with suppress(OSError):  # the child may die at once; its exit code says more
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
    """Return the current settings of this process, which a child applies.

    If the working folder was removed, the child keeps the server's working folder.
    """
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
    """The client of the fork server. Any thread may use it. `_lock` protects the socket and the process.

    A process that was forked from this one starts a server of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server's process, unless it runs. Returns at once: the imports of the server take half a second."""
        with self._lock:
            if not self._is_mine or (self._process is not None and self._process.poll() is not None):
                self._control = self._start()

    def close(self) -> None:
        """End the server's process at the end of the program. Remaining TaskManagers end when their driver ends."""
        if self._control is not None and self._process is not None and self._is_mine:
            self._control.close()
            self._process.kill()
            with suppress(KeyboardInterrupt):  # an interrupt at the end needs no traceback
                self._process.wait()

    def send(self, request: dict[str, Any], descriptors: Sequence[int]) -> socket.socket:
        """Send a request, and return the socket for further messages about the same child."""
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
        """Whether this process started the server. After a fork, the parent process may have started it."""
        return self._owner == os.getpid()

    def _start(self) -> socket.socket:
        if self._control is not None and self._process is not None:  # the server has ended, or is another process's
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
                process_group=0,  # the driver handles Ctrl-C
            )
        finally:
            theirs.close()
            os.close(output)
            os.close(errors)
        self._owner = os.getpid()
        return control


def command(idle: float) -> list[str]:
    """Return the command that starts a server, which ends after `idle` seconds with nothing to do.

    With -P the server imports nothing from the working folder, which may contain files of other users.
    """
    return [sys.executable, "-P", "-m", "headgate.runtime.launch.fork_server", str(idle)]


def _own_environ() -> dict[str, str]:
    """Return the server's environment. With it the server can import this package.

    The package's folder is added, because the driver may have found the package in the working folder ("").
    """
    environ: dict[str, str] = process_settings()["environ"]
    root = str(Path(__file__).resolve().parents[2])
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, [environ["PYTHONPATH"], root]))}


_numbers = itertools.count(1)
server = _Server()
atexit.register(server.close)


def _stream(number: int) -> int:
    """Return a copy of this process's current output stream, or of /dev/null if the stream is closed."""
    try:
        return os.dup(number)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _write(pipe: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(pipe, rest) :]
