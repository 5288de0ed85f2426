"""The clocks of a task. The code of a task reads no other clock, so a task can also run in simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clocks(NamedTuple):
    """Two clocks, in seconds: `monotonic` measures durations and deadlines, `wall` gives the time since the epoch.

    `sleep` suspends the calling thread for a number of seconds.
    """

    monotonic: Callable[[], float]
    wall: Callable[[], float]
    sleep: Callable[[float], None] = time.sleep

    def monotonic_at(self, moment: float) -> float:
        """Convert a wall time to the monotonic clock: return what `monotonic` shows when `wall` shows `moment`."""
        return self.monotonic() + moment - self.wall()


#: The machine's clocks.
SYSTEM = Clocks(time.monotonic, time.time)
