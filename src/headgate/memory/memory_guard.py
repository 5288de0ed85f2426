"""MemoryGuard: the most bytes in a queue that nothing else limits. A queue that needs more ends the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate.errors import NetworkMemoryFull


@dataclass(frozen=True, slots=True)
class MemoryGuard:
    """The most bytes that may wait in one queue. `elapsed` returns the seconds since the job started."""

    size: int
    elapsed: Callable[[], float]

    def full(self, what: str) -> NetworkMemoryFull:
        """Return the error of a full queue, with the time. `what` says what waits where, and what to do."""
        return NetworkMemoryFull(f"out of memory at {self.elapsed():.1f} s: {what}")
