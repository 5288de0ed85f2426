"""Runs a TaskManager in a process of its own: sets up the interpreter, and sends printed lines to the driver."""

from __future__ import annotations

import os
import pickle
import signal

from headgate.runtime import user_modules
from headgate.runtime.taskmanager.console import Console
from headgate.runtime.taskmanager.interpreter_settings import set_up_interpreter
from headgate.runtime.taskmanager.task_threads import StuckTasks
from headgate.runtime.taskmanager.taskmanager import TaskManager


def run(payload: bytes, index: int, host: str) -> None:
    """Run TaskManager `index` of a pickled TaskManagerSpec, `payload`, which comes from the driver itself.

    Printed lines go to the driver.
    """
    set_up_interpreter()
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
