"""Calls that may take long (to storage, and to sinks), on a thread beside the job's. The job's thread meanwhile handles
losses, deadlines and cancels.

Calls run one after the other, in the order in which they were submitted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

#: The callback on the job's thread; it gets the error that the call raised, or None.
Then = Callable[[Exception | None], None]


def raise_error(error: Exception | None) -> None:
    """Raise the error, if there is one."""
    if error is not None:
        raise error


def ignore_result(error: Exception | None) -> None:
    """Ignore the result: the caller polls."""


@dataclass(slots=True, eq=False)
class BackgroundCall:
    """A call, its callback, and the error that it raised."""

    work: Callable[[], object]
    then: Then
    error: Exception | None = None


class BackgroundWorker:
    """The background thread of one job, which is started with the first call. Only the job's thread uses this object.

    `name` is the thread's name. It calls `done` whenever `look` has callbacks to run. `_changed` protects the queue,
    the running call and `_closed`."""

    def __init__(self, name: str, done: Callable[[], None]) -> None:
        self._name = name
        self._done = done
        self._changed = threading.Condition()
        self._waiting: deque[BackgroundCall] = deque()
        self._running: BackgroundCall | None = None
        self._over: deque[BackgroundCall] = deque()
        self._runner: threading.Thread | None = None
        self._closed = False

    def begin(self, work: Callable[[], object], then: Then) -> BackgroundCall:
        """Queue a call, and return at once. While the program ends, Python 3.12 starts no thread: the call runs here
        then."""
        errand = BackgroundCall(work, then)
        with self._changed:
            self._waiting.append(errand)
            self._changed.notify_all()
        if self._runner is None:
            runner = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                runner.start()
                self._runner = runner
            except RuntimeError:
                self._waiting.remove(errand)
                self._do(errand)
        return errand

    def drop(self, errand: BackgroundCall) -> bool:
        """Take back a call that has not started, and return whether that was so. Its callback never runs."""
        with self._changed:
            if errand in self._waiting:
                self._waiting.remove(errand)
                return True
            return False

    def look(self) -> None:
        """Run the callbacks of calls that are done. Raises what a callback raises; call it again for the rest."""
        while self._over:
            errand = self._over.popleft()
            errand.then(errand.error)

    def settle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until all calls are done, and return whether they are. `look` runs their
        callbacks."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout)

    def close(self) -> None:
        """Start no further call. A call that does not return keeps its daemon thread."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            is_idle = self._is_idle()
            self._changed.notify_all()
        if self._runner is not None and is_idle:
            self._runner.join()

    def _is_idle(self) -> bool:
        return self._running is None and not self._waiting

    def _run(self) -> None:
        while (errand := self._next()) is not None:
            self._do(errand)

    def _do(self, errand: BackgroundCall) -> None:
        try:
            errand.work()
        except Exception as error:
            errand.error = error
        self._over.append(errand)
        with self._changed:
            self._running = None
            self._changed.notify_all()
        self._done()

    def _next(self) -> BackgroundCall | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            self._running = None if self._closed else self._waiting.popleft()
            return self._running
