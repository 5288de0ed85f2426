"""Removes the delay that Linux adds to the timed waits of a thread.

Linux may delay each timed wait of a thread by its *timer slack*, so that several timers expire together. It is 50 us by
default, and adds to the latency of every row of a source with a schedule.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from typing import Final

_PR_SET_TIMERSLACK: Final = 29


def remove_timer_slack() -> None:
    """Set the calling thread's timer slack to its smallest value, 1 ns. Other systems than Linux ignore the call."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a sandbox may forbid the call; the thread then wakes later
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
