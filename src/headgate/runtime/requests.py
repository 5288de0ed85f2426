"""What is asked of a running job, from any thread, and what becomes of it."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from headgate.errors import CheckpointError, HeadgateError
from headgate.runtime.checkpoint_coordinator import Request


class Requests:
    """Savepoints of one job: `ask` is called by any thread, the rest by the job's. Each is answered once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: deque[Request] = deque()
        self._answers: dict[Request, Future[str]] = {}
        self._over: HeadgateError | None = None

    def ask(self, uri: str) -> Future[str]:
        """A savepoint below `uri`; its own URI, or CheckpointError, comes with the answer."""
        request, answer = Request(uri), Future[str]()
        with self._lock:
            if self._over is None:
                self._new.append(request)
                self._answers[request] = answer
            else:
                answer.set_exception(self._over)
        return answer

    def take(self) -> list[Request]:
        """Those that are new."""
        with self._lock:
            taken = list(self._new)
            self._new.clear()
        return taken

    def done(self, request: Request, uri: str) -> None:
        """It is stored."""
        with self._lock:
            self._answers.pop(request).set_result(uri)

    def failed(self, request: Request, reason: str) -> None:
        """Nothing came of it."""
        with self._lock:
            self._answers.pop(request).set_exception(CheckpointError(reason))

    def close(self, reason: str) -> None:
        """The job is over: whatever is asked for, or will be, comes too late."""
        with self._lock:
            self._over = CheckpointError(reason)
            for answer in self._answers.values():
                answer.set_exception(self._over)
            self._answers.clear()
