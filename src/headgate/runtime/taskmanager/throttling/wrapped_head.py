"""`WrappedHead`: the base of heads that wrap another head and change its `step`."""

from __future__ import annotations

from headgate.runtime.task.heads import Head
from headgate.runtime.task.time_account import Wait


class WrappedHead:
    """A `Head` that passes every call on to `head`. A subclass changes `step`."""

    def __init__(self, head: Head) -> None:
        self._head = head

    @property
    def waits_for(self) -> Wait:
        return self._head.waits_for

    def step(self, now: float) -> float:
        return self._head.step(now)

    def end(self) -> None:
        self._head.end()

    def on_backpressure(self, begins: bool, now: float) -> None:
        self._head.on_backpressure(begins, now)

    def close(self) -> None:
        self._head.close()
