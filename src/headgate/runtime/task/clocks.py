"""The clocks of a task. The code of a task reads no other clock, so a task can also run in simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clocks(NamedTuple):
    """Two clocks, in seconds: `monotonic` for durations and deadlines, `wall` for moments since the epoch.

    `sleep` lets the calling thread wait for a number of seconds.
    """

    monotonic: Callable[[], float]
    wall: Callable[[], float]
    sleep: Callable[[float], None] = time.sleep

    def monotonic_at(self, moment: float) -> float:
        """Return the time of the clock `monotonic` at the moment when the clock `wall` shows `moment`."""
        return self.monotonic() + moment - self.wall()


#: The machine's clocks.
SYSTEM = Clocks(time.monotonic, time.time)
