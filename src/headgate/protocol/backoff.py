"""The waits between repeated requests. Each wait is twice the previous wait; the longest wait is the last."""

from __future__ import annotations


class Backoff:
    """The waits of one request, in seconds (Flink: `taskmanager.network.request-backoff`, 100 ms to 10 s)."""

    __slots__ = ("_longest", "_next")

    def __init__(self, initial: float = 0.1, longest: float = 10.0) -> None:
        self._longest = longest
        self._next: float | None = min(initial, longest)

    def next(self) -> float | None:
        """Return the next wait in seconds, or None after the longest one."""
        wait = self._next
        if wait is not None:
            self._next = min(2 * wait, self._longest) if wait < self._longest else None
        return wait
