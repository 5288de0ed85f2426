"""A server process that forks TaskManagers. Imports take a second; the server imports once for all TaskManagers.

The module `forks` starts the server, and sends requests on the socket that is the server's standard input. A request to
start a child brings four descriptors: the child's standard input, output and error, and a pipe for the report of the
child's end. The server has one thread and runs no code of the user's, so each fork starts from a clean state. The
server ends when its driver ends, or when no request has come for a while.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.runtime.launch import child, framing
from headgate.runtime.launch.forks import ENDED, PROCESS_NAME

#: Seconds without a request, after which the server imports slow modules, so that the first job need not wait.
_QUIET: Final = 0.1
_LARGEST_REQUEST: Final = 4096
_DESCRIPTORS: Final = 4
_ALL_DESCRIPTORS: Final = 1 << 16


class _Server:
    """The server. It ends after `idle` seconds without a child and without a request."""

    def __init__(self, control: socket.socket, idle: float) -> None:
        self._control = control
        self._idle = idle
        self._listens = True
        #: Whether `_settle` has imported the slow modules.
        self._is_settled = False
        #: The children, by the driver's number: the process, and the pipe for the report of its end.
        self._children: dict[int, tuple[int, int]] = {}
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def run(self) -> None:
        while self._listens or self._children:
            watched: list[int | socket.socket] = [self._woken, *([self._control] if self._listens else [])]
            patience = (None if self._children else self._idle) if self._is_settled else _QUIET
            readable, _, _ = select.select(watched, [], [], patience)
            if self._woken in readable:
                os.read(self._woken, _LARGEST_REQUEST)
                self._reap()
            if self._control in readable:
                self._serve()
            if not readable and not self._is_settled:
                self._settle()
            elif not readable:  # the server still serves requests that were sent; later requests find the socket shut
                self._control.shutdown(socket.SHUT_RD)

    def _settle(self) -> None:
        """Let pyarrow import pandas, so that the first job need not wait. The first list given to pyarrow does this."""
        pa.array([0])
        _freeze()
        self._is_settled = True

    def _serve(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, _LARGEST_REQUEST, _DESCRIPTORS)
        if not data:
            self._listens = False
            return
        request: dict[str, Any] = json.loads(data)
        if "kill" in request:
            if request["kill"] in self._children:
                os.kill(self._children[request["kill"]][0], signal.SIGKILL)
            return
        *streams, status = descriptors
        process = _fork()
        if process == 0:
            _run_child(streams, request["index"], request["count"], request["host"])
        for descriptor in streams:
            os.close(descriptor)
        self._children[request["start"]] = process, status
        if process < 0:
            self._tell_end(request["start"], 0)

    def _reap(self) -> None:
        for number, (process, _) in list(self._children.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                # End the processes that functions started in the child. The group keeps the child's number while one
                # of them lives.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process, signal.SIGKILL)
                self._tell_end(number, os.waitstatus_to_exitcode(status))

    def _tell_end(self, number: int, code: int) -> None:
        process, status = self._children.pop(number)
        with suppress(OSError):  # the driver may have ended
            os.write(status, ENDED.pack(max(process, 0), code))
        os.close(status)


def _fork() -> int:
    """Fork this process. Returns the child's process id, 0 in the child, or -1 if the system cannot start a process."""
    with warnings.catch_warnings():
        # Python warns if a process with threads forks. Its threads are those of OpenBLAS and jemalloc, which handle
        # forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return os.fork()
        except OSError:
            return -1


def _run_child(streams: list[int], index: int, count: int, host: str) -> None:
    """Run the child, and end the process. It never returns: the frames above hold the server's sockets."""
    code = framing.NOT_REPORTED
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)  # the driver handles Ctrl-C
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, _ALL_DESCRIPTORS)
        if (process_settings := framing.read(0)) is not None:
            _apply_settings(json.loads(process_settings))
            _name(f"{PROCESS_NAME}{index}")
            code = child.main(index, count, host)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _apply_settings(process_settings: dict[str, Any]) -> None:
    """Apply the current settings of the driver's process, see `forks.process_settings`."""
    os.environ.clear()
    os.environ.update(process_settings["environ"])
    time.tzset()
    sys.path[:] = process_settings["path"]
    if process_settings["folder"] is not None:
        os.chdir(process_settings["folder"])
    if process_settings["cores"]:
        os.sched_setaffinity(0, process_settings["cores"])
    random.seed()
    np.random.seed()  # otherwise all children would draw the same numbers


def _name(name: str) -> None:
    """Set the process's name for `ps` and `top`, on Linux."""
    with suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)


def _freeze() -> None:
    """Freeze the objects that exist, so that their memory stays shared with forks."""
    gc.collect()
    gc.freeze()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=0)
    importlib.import_module("headgate")  # this imports all modules that pipelines use
    _freeze()
    _Server(control, float(sys.argv[1])).run()


if __name__ == "__main__":
    main()
