"""The main function of a forked TaskManager process. The process reads the plan from standard input, and ends when the
driver ends."""

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
    """Run the TaskManager, and return the process's exit code. An unexpected error is printed."""
    # The process is in a group of its own, so Ctrl-C does not reach it. SIGINT, if it is sent to this process, ends
    # the process, and the driver reports the signal.
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
    """End this process when the driver ends. The pipe closes then, because the driver holds its other end."""
    while os.read(pipe, 1):
        pass
    os._exit(NOT_REPORTED)
