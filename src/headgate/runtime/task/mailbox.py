"""How other threads talk to a task: a wake-up that coalesces, and mail that runs on the task thread between batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Signal:
    """A binary flag one thread waits for and any thread sets; setting it again before it was seen costs next to
    nothing."""

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
        """Wait until set, or for `timeout` seconds; clears the flag. Returns whether it was set."""
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0.0, min(timeout, threading.TIMEOUT_MAX))):
            return False
        with self._mutex:
            self._is_set = False
        return True


class Mailbox:
    """Mail to one task thread. `wake` alone makes it look at its inputs and outputs again."""

    def __init__(self) -> None:
        self._signal = Signal()
        self._mail: deque[Callable[[], None]] = deque()
        self.wake = self._signal.set
        self.wait = self._signal.wait

    def put(self, mail: Callable[[], None]) -> None:
        """Any thread: run `mail` on the task thread, between batches, also while it waits."""
        self._mail.append(mail)
        self._signal.set()

    def run(self) -> None:
        """The task thread: run what has come; what it raises ends the task."""
        while self._mail:
            self._mail.popleft()()
