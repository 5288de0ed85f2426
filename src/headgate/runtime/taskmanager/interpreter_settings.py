"""Settings of the Python interpreter for a process that runs tasks."""

from __future__ import annotations

import gc
import sys
from typing import Final

import pyarrow as pa

#: Seconds after which a thread that computes gives the interpreter lock to another thread that waits for it.
_SWITCH_INTERVAL: Final = 0.0005
#: The number of new objects after which Python collects the youngest generation. Python's default of 700 cost 2 % of
#: the time of a keyed sum: batches make many short-lived objects and no cycles.
_COLLECTED_AFTER: Final = 5_000


def set_up_interpreter() -> None:
    """Set up the calling process for tasks and a network thread, which share the interpreter lock.

    A short switch interval keeps the network thread responsive while a task computes in Python. Arrow's own threads are
    switched off, because they would only compete for the same core.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL)
    pa.set_cpu_count(1)
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
