"""The base of heads that hold a source back, and the head of a source whose throttle limits only sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from headgate.runtime.task.heads import Head, SourceHead
from headgate.runtime.task.time_account import Wait
from headgate.throttle.mechanism import SourcePolicy

H = TypeVar("H", bound=Head)


class GatedSourceHead(Generic[H]):
    """A `Head` that wraps the head of a source, or another `GatedSourceHead`. A subclass adds `step`, which calls
    `_throttle`.

    While the throttle holds the source back, the task counts as throttled, not as idle, and the idle clock does not
    run.
    """

    def __init__(self, head: H) -> None:
        self._head = head
        self._is_throttled = False
        self._is_backpressured = False

    @property
    def waits_for(self) -> Wait:
        return Wait.THROTTLED if self._is_throttled else self._head.waits_for

    def _throttle(self, is_throttled: bool, now: float) -> None:
        """Record whether the throttle now holds the source back."""
        self._is_throttled = is_throttled
        self._hold_idle_clock(now)

    def end(self) -> None:
        self._head.end()

    def on_backpressure(self, begins: bool, now: float) -> None:
        self._is_backpressured = begins
        self._hold_idle_clock(now)

    def _hold_idle_clock(self, now: float) -> None:
        self._head.on_backpressure(self._is_throttled or self._is_backpressured, now)

    def close(self) -> None:
        self._head.close()


class ThrottledSourceHead(GatedSourceHead[SourceHead]):
    """A `Head` that wraps the head of a source. It asks `policy` before each read, and reports the rows to `policy`.

    The head never splits a batch. If a batch has more rows than the policy allows, the next read waits longer.
    Barriers, timers and a cancel do not wait. `clock` is the monotonic clock, in seconds.
    """

    def __init__(self, source: SourceHead, policy: SourcePolicy, clock: Callable[[], float]) -> None:
        super().__init__(source)
        self._policy = policy
        self._clock = clock

    def step(self, now: float) -> float:
        source = self._head
        at = now if source.is_held or source.ends_now else self._policy.permit(now)
        self._throttle(at > now, now)
        if at > now:
            return at
        rows = source.rows
        until = source.step(now)
        if source.rows > rows:
            self._policy.emitted(self._clock(), source.rows - rows)
        return until
