"""`headgate demo --stall`: one subtask is slow for some seconds, as if it asked a server that answers slowly."""

from __future__ import annotations

import threading
import time
from typing import Final

import pyarrow as pa

from headgate.runtime.running_operator import current_operator

#: The operator that stalls, in the chain behind the windows of carriers, and its subtask.
NAME: Final = "gate_agents"
SUBTASK: Final = 1
#: Seconds of the job before the stall and after it: time to look, and to catch up.
BEFORE, AFTER = 15.0, 25.0
#: How many rows come on average while the slow subtask processes one.
SLOWNESS: Final = 16.0
#: Rows of windows that come to one of the two subtasks in a year of flights.
_ROWS: Final = 30_000.0


def speedup_of(stall: float) -> float:
    """Return the speedup with which a year of flights takes as long as the stall and the times before and after it."""
    return 365 * 24 * 3600 / (BEFORE + stall + AFTER)


class SlowSubtask:
    """A function for `map_batches` that changes no row. In one subtask it waits at each row during `seconds` seconds,
    which begin `before` seconds after its first rows. `speedup` is that of the replay. Each subtask needs its own
    instance."""

    def __init__(self, seconds: float, speedup: float, before: float = BEFORE) -> None:
        self._seconds, self._before = seconds, before
        self._per_row = SLOWNESS * 365 * 24 * 3600 / speedup / _ROWS
        self._begins: float | None = None
        self._is_slow = False

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        now = time.monotonic()
        if self._begins is None:
            self._begins = now + self._before
            self._is_slow = current_operator() == f"{NAME}[{SUBTASK}]"
        if self._is_slow and self._begins <= now < self._begins + self._seconds:
            end = self._begins + self._seconds
            threading.Event().wait(min(end - now, batch.num_rows * self._per_row))
        return batch
