"""Statements that Ctrl-C ends, although Python does not run while the database works on them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

#: Seconds of one step of a wait.
_WAIT_SLICE: Final = 0.1
#: How long an interrupted call may take to end after its cancel, in seconds.
_CANCEL_WAIT: Final = 1.0


class Interruptible:
    """Calls of one connection, one after the other.

    In the main thread, a call runs on a thread of its own: the main thread waits for it and gets signals. ADBC would
    take SIGINT from the program, and turn it into an error of the database.
    """

    def __init__(self) -> None:
        #: Set when the last call has ended. Python 3.11 takes a thread for ended if a `join` of it is interrupted.
        self._done = threading.Event()
        self._done.set()

    def run(self, call: Callable[[], Any], cancel: Callable[[], None]) -> Any:
        """Return what `call` returns, or raise what it raises. If a signal's handler raises, call `cancel` first."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        results: list[Any] = []
        errors: list[BaseException] = []
        done, begins = threading.Event(), threading.Lock()

        def keep() -> None:
            if not begins.acquire(blocking=False):
                return
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)
            done.set()

        try:
            self._done = done
            threading.Thread(target=keep, name="headgate-database-statement", daemon=True).start()
            while not done.wait(_WAIT_SLICE):  # in steps: with ADBC's libraries, a signal does not end a wait
                pass
        except BaseException:
            if begins.acquire(blocking=False):
                done.set()  # the call has not begun, and will not
                raise
            with suppress(Exception):  # SQLite cannot cancel
                cancel()
            done.wait(_CANCEL_WAIT)
            raise
        if errors:
            raise errors[0]
        return results[0]

    def close(self, close: Callable[[], None]) -> None:
        """Call `close`. If an interrupted call has not ended, a thread does so when the call has ended."""
        done = self._done
        if done.is_set():
            return close()

        def later() -> None:
            done.wait()
            close()

        threading.Thread(target=later, name="headgate-database-close", daemon=True).start()
