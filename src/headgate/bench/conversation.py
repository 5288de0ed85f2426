"""A conversation in JSON lines with a child process, which is another engine or an end of an exchange."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from headgate.errors import HeadgateError

#: Seconds that a process may take to end by itself after its input is closed.
GRACE = 10.0


class ChildFailed(HeadgateError):
    """A child process could not be set up or did not answer. The message says why."""


class ChildProcess:
    """A child process that runs `command`. Use it as a context manager.

    The process has a process group of its own, so that a JVM that it starts ends with it. `name` is the name of the
    process in errors.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self._name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send `request` and return the answer.

        Raises ChildFailed if the answer is an error, the process ends, or no answer comes within `timeout` seconds.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        timer = threading.Timer(timeout, self._kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
            timer.join()
        if not line:
            raise ChildFailed(
                f"{self._name} ended or gave no answer to {request} within {timeout:g} s; "
                f"the end of its log: {self._tail()}"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildFailed(f"{self._name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process and all processes that it started, and wait for it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self._kill()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-500:].decode(errors="replace").strip() or "none"


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the requests on standard input until the input ends. The child calls this. An exception becomes the
    answer."""
    for line in sys.stdin:
        try:
            response = answer(json.loads(line))
        except Exception as error:
            response = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        print(json.dumps(response), flush=True)
