"""The mailbox of a task thread. Other threads wake the task thread, or send calls for it to run between two batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Signal:
    """A flag that one thread waits for and any thread sets.

    To set a flag that is already set costs almost nothing. `_mutex` protects `_is_set`. The object keeps `_lock` locked
    while the flag is not set: `wait` acquires `_lock`, and `set` releases it.
    """

    __slots__ = ("_is_set", "_lock", "_mutex")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._mutex = threading.Lock()
        self._is_set = False

    def set(self) -> None:
        if self._is_set:
            return
        with self._mutex:
            if not self._is_set:
                self._is_set = True
                self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the flag is set, at most `timeout` seconds (None: without a limit), and clear it.

        Returns whether the flag was set.
        """
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))):
            return False
        with self._mutex:
            self._is_set = False
        return True


class Mailbox:
    """The mailbox of one task thread. `wake` makes the thread look at its inputs and outputs again."""

    def __init__(self) -> None:
        self._signal = Signal()
        self._mail: deque[Callable[[], None]] = deque()
        self.wake = self._signal.set
        self.wait = self._signal.wait

    def put(self, mail: Callable[[], None]) -> None:
        """Let the task thread run `mail`, between two batches or while it waits. Any thread may call this."""
        self._mail.append(mail)
        self._signal.set()

    def run(self) -> None:
        """Run all waiting mail. Only the task thread calls this. An exception that mail raises ends the task."""
        while self._mail:
            self._mail.popleft()()
