"""Run a TaskManager in a forked process: read the plan from standard input, run it, and end with the driver."""

from __future__ import annotations

import os
import signal
import threading
import traceback

from headgate.errors import DriverLost, HeadgateError
from headgate.runtime.launch.cores import own_cores
from headgate.runtime.launch.framing import CUT_OFF, DONE, NOT_REPORTED, read
from headgate.runtime.taskmanager import taskmanager_process


def main(index: int, count: int, host: str) -> int:
    """Return the exit code. An unexpected error is printed."""
    # The process is in a group of its own, so Ctrl-C does not reach it. A signal that is sent to it ends it, and the
    # driver reports the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    payload = read(0)
    if payload is None:
        return NOT_REPORTED
    threading.Thread(target=_end_with_driver, args=(0,), name="headgate-parent-watch", daemon=True).start()
    try:
        with own_cores(index, count):
            taskmanager_process.run(payload, index, host)
    except DriverLost:
        return CUT_OFF
    except HeadgateError:
        return NOT_REPORTED
    except BaseException:
        traceback.print_exc()
        return NOT_REPORTED
    return DONE


def _end_with_driver(pipe: int) -> None:
    """End this process with the driver, which holds the other end of the pipe for as long as it lives."""
    while os.read(pipe, 1):
        pass
    os._exit(NOT_REPORTED)
