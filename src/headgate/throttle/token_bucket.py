"""A token bucket with debt: a batch passes whole, and the next batch waits until it is paid for."""

from __future__ import annotations


class TokenBucket:
    """Limits rows per second. It saves up the tokens of an idle time of at most `burst` seconds.

    These are the rules of Guava's `RateLimiter` (class `SmoothBursty`, with a burst of 1 s), which Spark Streaming
    uses. All times are seconds of one clock. The bucket is empty at `now`, when it is made.

    >>> bucket = TokenBucket(rate=10.0, burst=1.0, now=0.0)
    >>> bucket.permit(now=0.0)
    0.0
    >>> bucket.emitted(now=0.0, rows=20)
    >>> bucket.permit(now=0.5)  # the debt of 20 rows is paid after 2 s
    2.0
    """

    __slots__ = ("_burst", "_free_at", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = 0.0
        self._free_at = now

    def permit(self, now: float) -> float:
        """Return the time at which the debt is paid. It is in the past if there is none."""
        return self._free_at

    def emitted(self, now: float, rows: int) -> None:
        """Take a token for each row: first saved tokens, then those of the time after `now`: the debt."""
        self._save(now)
        saved = min(float(rows), self._tokens)
        self._tokens -= saved
        self._free_at += (rows - saved) / self._rate

    def set_rate(self, now: float, rate: float) -> None:
        """Change the rate. The saved tokens change with it, and a debt is paid when the old rate would have paid it."""
        self._save(now)
        self._tokens *= rate / self._rate
        self._rate = rate

    def _save(self, now: float) -> None:
        """Add the tokens since the last debt was paid."""
        if now > self._free_at:
            self._tokens = min(self._burst * self._rate, self._tokens + (now - self._free_at) * self._rate)
            self._free_at = now
