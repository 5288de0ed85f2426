"""`TurnToken`: the task threads of a process take turns, so that only one of them computes.

NumPy and Arrow release the interpreter lock during each call on a large array. So two busy tasks would pass the lock to
each other dozens of times per batch. Each pass wakes a thread, often on another processor: that can cost more than the
work. With the token, a task keeps the interpreter for whole batches, and the others sleep meanwhile.

A task that waits inside a batch, for example for a server, must not delay the others. So no thread waits for the token
longer than `PATIENCE`. A task that held the token but hardly used a processor then runs without the token for a while.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Final

#: Seconds for which a task keeps the token, batch after batch, while others wait for it.
QUANTUM: Final = 0.0005
#: Seconds after which the other tasks run without the token, if its holder does not return from a batch.
PATIENCE: Final = 0.005
#: A holder that uses a processor for less than this share of the time waits for something outside. The share is well
#: below 1, because threads without the token may interrupt a holder that computes.
_COMPUTES: Final = 0.4
#: The share is measured over at least this many seconds.
_JUDGED: Final = 0.02
#: Such a task runs without the token for this many times the measured seconds. It then delays the others by 1 % at
#: most.
_ABSENCE: Final = 100.0
#: The most seconds that a task runs without the token, before it tries again.
_LONGEST_ABSENCE: Final = 10.0


class TurnToken:
    """The token of a process, which at most one task holds.

    `clock` is in seconds, and `cpu` returns the processor seconds of the calling thread. `_mutex` protects all other
    attributes. No thread waits while it holds `_mutex`.
    """

    def __init__(
        self, clock: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.thread_time
    ) -> None:
        self.clock, self.cpu = clock, cpu
        self._mutex = Lock()
        self._queue: deque[TokenUser] = deque()
        self._holder: TokenUser | None = None
        self._since = 0.0
        #: Whether other threads have waited for `PATIENCE` seconds. If so, no thread waits for the token until the
        #: holder returns it.
        self._is_overdue = False

    def user(self) -> TokenUser:
        """Return a new `TokenUser` for one task thread."""
        return TokenUser(self)


class TokenUser:
    """The handle by which one task thread takes and returns the token. Only this thread calls the methods.

    >>> token = TurnToken()
    >>> one, other = token.user(), token.user()
    >>> one.take(), other.take()
    (True, False)
    >>> one.give_back()
    >>> other.wait()
    >>> other.holds, one.holds
    (True, False)
    """

    __slots__ = ("_absent_until", "_computed", "_cpu", "_held", "_lock", "_token")

    def __init__(self, token: TurnToken) -> None:
        self._token = token
        #: A lock that is locked while this thread must wait. The thread that passes the token on releases the lock.
        self._lock = Lock()
        self._lock.acquire()
        #: The processor time of the thread when it got the token.
        self._cpu = 0.0
        #: Seconds for which the thread held the token while others waited, and the processor seconds that it used in
        #: this time.
        self._held = self._computed = 0.0
        self._absent_until = 0.0

    @property
    def holds(self) -> bool:
        """Whether this thread holds the token."""
        return self._token._holder is self

    def take(self) -> bool:
        """Take the token, and return whether the thread may compute now. If not, the thread must call `wait` first.

        A thread that holds the token passes it on if its time is over and another thread waits.
        """
        token = self._token
        if token._holder is self:
            if not token._queue or token.clock() < token._since + QUANTUM:
                return True
            self.give_back()
        if self._absent_until and token.clock() < self._absent_until:
            return True
        with token._mutex:
            if token._is_overdue:
                return True
            if token._holder is not None:
                token._queue.append(self)
                return False
            token._holder, token._since = self, token.clock()
        self._cpu = token.cpu()
        return True

    def wait(self) -> None:
        """Wait until the thread may compute: it has the token, or the holder did not return the token in time."""
        token, timeout = self._token, PATIENCE
        while not self._lock.acquire(timeout=timeout):
            with token._mutex:
                timeout = token._since + PATIENCE - token.clock()
                if self in token._queue and timeout <= 0:
                    token._queue.remove(self)
                    token._is_overdue = True
                    return
            timeout = max(timeout, 0.0)
        self._cpu = token.cpu()

    def give_back(self) -> None:
        """Pass the token on, if this thread holds it. Call this before each wait."""
        token = self._token
        if token._holder is not self:
            return
        with token._mutex:
            held = token.clock() - token._since
            others_waited = token._is_overdue or bool(token._queue)
            token._is_overdue = False
            token._holder = token._queue.popleft() if token._queue else None
            if token._holder is not None:
                token._since = token.clock()
                token._holder._lock.release()
        if others_waited:
            self._judge(held, token.cpu() - self._cpu)

    def _judge(self, held: float, computed: float) -> None:
        """Let the thread run without the token for a while, if it made others wait and hardly computed."""
        self._held += held
        self._computed += computed
        if self._held >= _JUDGED:
            if self._computed < _COMPUTES * self._held:
                self._absent_until = self._token.clock() + min(_ABSENCE * self._held, _LONGEST_ABSENCE)
            self._held = self._computed = 0.0


#: The token of this process: its threads share one interpreter lock.
_OF_PROCESS: Final = TurnToken()


def token_for_thread() -> TurnToken:
    """Return the token for a task that runs in the calling thread.

    A thread that may use only one core gets a token of its own. The threads of one core never compute at the same time,
    so the interpreter lock seldom goes from one to the other. To wait for a token would cost more.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _OF_PROCESS if cores > 1 else TurnToken()
