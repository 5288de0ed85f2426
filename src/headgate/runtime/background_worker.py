"""Runs calls that may take long (to storage and to sinks) on a background thread.

The job's thread meanwhile handles lost TaskManagers, deadlines and cancels. Calls run one after the other, in the order
in which they were submitted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")

#: The callback of a call. The job's thread runs it, with the error that the call raised, or None.
Callback = Callable[[Exception | None], None]


def raise_error(error: Exception | None) -> None:
    """Raise the error, if there is one."""
    if error is not None:
        raise error


def ignore_result(error: Exception | None) -> None:
    """Ignore the result: the caller polls."""


@dataclass(slots=True, eq=False)
class BackgroundCall:
    """A call, its callback, and the error that the call raised."""

    work: Callable[[], object]
    callback: Callback
    error: Exception | None = None


class BackgroundWorker:
    """The background thread of one job; the first call starts it. Only the job's thread uses this object.

    `name` is the thread's name. The thread calls `done` whenever `run_callbacks` has callbacks to run. `_changed`
    protects the queue, the running call and `_closed`. A thread that holds `_changed` takes no other lock.
    """

    def __init__(self, name: str, done: Callable[[], None]) -> None:
        self._name = name
        self._done = done
        self._changed = threading.Condition()
        self._waiting: deque[BackgroundCall] = deque()
        self._running: BackgroundCall | None = None
        self._done_calls: deque[BackgroundCall] = deque()
        self._runner: threading.Thread | None = None
        self._closed = False

    def submit(self, work: Callable[[], object], callback: Callback) -> BackgroundCall:
        """Queue a call, and return at once.

        While the program ends, Python 3.12 starts no threads. The method then runs the call itself.
        """
        call = BackgroundCall(work, callback)
        with self._changed:
            self._waiting.append(call)
            self._changed.notify_all()
        if self._runner is None:
            runner = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                runner.start()
                self._runner = runner
            except RuntimeError:
                self._waiting.remove(call)
                self._execute(call)
        return call

    def ask(self, work: Callable[[], _T]) -> Future[_T]:
        """Queue `work`, and return a future for its result or error."""
        answer: Future[_T] = Future()

        def answer_it() -> None:
            try:
                answer.set_result(work())
            except Exception as error:
                answer.set_exception(error)

        self.submit(answer_it, ignore_result)
        return answer

    def cancel(self, call: BackgroundCall) -> bool:
        """Remove a call that has not started. Returns whether it was removed. A removed call's callback never runs."""
        with self._changed:
            if call in self._waiting:
                self._waiting.remove(call)
                return True
            return False

    def run_callbacks(self) -> None:
        """Run the callbacks of calls that are done.

        Raises what a callback raises. In that case, call the method again for the remaining callbacks.
        """
        while self._done_calls:
            call = self._done_calls.popleft()
            call.callback(call.error)

    def wait_until_idle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until all calls are done. Returns whether all calls are done.

        The method runs no callbacks: `run_callbacks` does.
        """
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout)

    def close(self) -> None:
        """Drop the queued calls, and end the thread. Does not wait for a running call, after which the thread ends."""
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
        while (call := self._next()) is not None:
            self._execute(call)

    def _execute(self, call: BackgroundCall) -> None:
        try:
            call.work()
        except Exception as error:
            call.error = error
        self._done_calls.append(call)
        with self._changed:
            self._running = None
            self._changed.notify_all()
        self._done()

    def _next(self) -> BackgroundCall | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            self._running = None if self._closed else self._waiting.popleft()
            return self._running
