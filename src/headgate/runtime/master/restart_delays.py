"""Decides how long a failed job waits for its restart. Callers pass the time, in seconds of one clock."""

from __future__ import annotations

import math
from collections import deque

from headgate.restart import ExponentialDelay, FailureRate, FixedDelay, RestartStrategy


class Restarts:
    """Applies the restart strategy of one job: decides whether and when the job restarts."""

    def __init__(self, strategy: RestartStrategy) -> None:
        self._strategy = strategy
        self._made = 0
        self._last = -math.inf
        self._longer = 0.0
        self._failures: deque[float] = deque()

    @property
    def has_limit(self) -> bool:
        """Whether the strategy limits the number of restarts. A job that always fails then ends."""
        return not isinstance(self._strategy, ExponentialDelay)

    def note_failure(self, now: float) -> float | None:
        """Record a failure. Returns the seconds to wait before the restart, or None if the job is not restarted."""
        match self._strategy:
            case FixedDelay(attempts, delay):
                return self._restart(now, delay) if self._made < attempts else None
            case ExponentialDelay(initial, most, factor, reset):
                if now - self._last >= reset:
                    self._longer = 0.0
                delay = self._longer
                self._longer = min(most, delay * factor) if delay else initial
                return self._restart(now, delay)
            case FailureRate(most, interval, delay):
                while self._failures and self._failures[0] <= now - interval:
                    self._failures.popleft()
                if len(self._failures) >= most:
                    return None
                self._failures.append(now)
                return self._restart(now, delay)
        return None

    def _restart(self, now: float, delay: float) -> float:
        self._made += 1
        self._last = now + delay
        return delay
