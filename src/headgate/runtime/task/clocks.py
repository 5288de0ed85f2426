"""The clocks of a task. Its code reads no other clock, so it also runs in simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Clocks(NamedTuple):
    """Two clocks, in seconds: `monotonic` for durations and deadlines, `wall` for moments since the epoch."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]

    def monotonic_at(self, moment: float) -> float:
        """Return what `monotonic` shows when `wall` shows `moment`."""
        return self.monotonic() + moment - self.wall()


#: The machine's clocks.
SYSTEM = Clocks(time.monotonic, time.time)
