"""Runs a TaskManager in a process of its own: sets up the interpreter, and sends printed lines to the driver."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys

import pyarrow as pa

from headgate.runtime import user_modules
from headgate.runtime.taskmanager.console import Console
from headgate.runtime.taskmanager.task_threads import StuckTasks
from headgate.runtime.taskmanager.taskmanager import TaskManager

#: The number of new objects after which Python collects the youngest generation. Python's default of 700 cost 2 % of
#: the time of a keyed sum: batches make many short-lived objects and no cycles.
_COLLECTED_AFTER = 5_000


def run(payload: bytes, index: int, host: str) -> None:
    """Run TaskManager `index` of a pickled TaskManagerSpec, `payload`, which comes from the driver itself.

    Threads share this process's interpreter lock. A short switch interval keeps the network thread responsive while a
    task computes in Python. Arrow's own threads are switched off, because they would only compete for the same core.
    Printed lines go to the driver.
    """
    sys.setswitchinterval(0.0005)
    pa.set_cpu_count(1)
    gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
    console = Console(f"TaskManager {index}")
    try:
        with console.installed():
            TaskManager(pickle.loads(payload), index, host, console).run()
    except StuckTasks:
        # Only the end of the process ends a function that does not return. Otherwise Spark reuses this process for the
        # next job.
        os.kill(os.getpid(), signal.SIGKILL)
    finally:
        user_modules.remove()
