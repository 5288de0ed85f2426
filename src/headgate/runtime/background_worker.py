"""What a driver does that may take long - with its storage, and with its sinks - on a thread beside the job's, which
goes on to see to losses, deadlines and cancels meanwhile.

BackgroundWorker are run one after the other, in the order in which they were begun.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

#: What follows on the job's thread, with the error that the errand came to.
Then = Callable[[Exception | None], None]


def raise_error(error: Exception | None) -> None:
    """Nothing follows but the error."""
    if error is not None:
        raise error


def ignore_result(error: Exception | None) -> None:
    """Nothing follows: whoever began it looks for himself."""


@dataclass(slots=True, eq=False)
class BackgroundCall:
    """One of them."""

    work: Callable[[], object]
    then: Then
    error: Exception | None = None


class BackgroundWorker:
    """Of one job, whose thread calls all of it. `done` is called by the other thread, which is called `name`, whenever
    `look` has something to see to. That thread is there once there is something to do."""

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
        """Returns at once; while the program ends, when it is done, for then Python 3.12 begins no thread any more."""
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
        """Whether it has not been begun: then it never is, and nothing follows."""
        with self._changed:
            if errand in self._waiting:
                self._waiting.remove(errand)
                return True
            return False

    def look(self) -> None:
        """Do what follows from those that are done. Raises what that raises; then call it again."""
        while self._over:
            errand = self._over.popleft()
            errand.then(errand.error)

    def settle(self, timeout: float) -> bool:
        """Wait until all are done; returns whether they are. What follows is for `look`."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout)

    def close(self) -> None:
        """Begin nothing more. One that does not come to its end is left to its thread, a daemon."""
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
