"""What a TaskManager process does: it reads its plan from standard input, runs, and ends with its driver."""

from __future__ import annotations

import os
import signal
import threading
import traceback

from headgate.errors import DriverLost, HeadgateError
from headgate.runtime.launch.cores import own_cores
from headgate.runtime.launch.framing import CUT_OFF, DONE, NOBODY_TOLD, read
from headgate.runtime.taskmanager import taskmanager_process


def main(index: int, count: int, host: str) -> int:
    """The exit code. What ends it as nothing should is printed."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who sends it to us means us; the driver then says what we died of
    payload = read(0)
    if payload is None:
        return NOBODY_TOLD
    threading.Thread(target=_end_with_driver, args=(0,), name="headgate-parent-watch", daemon=True).start()
    try:
        with own_cores(index, count):
            taskmanager_process.run(payload, index, host)
    except DriverLost:
        return CUT_OFF
    except HeadgateError:
        return NOBODY_TOLD
    except BaseException:
        traceback.print_exc()
        return NOBODY_TOLD
    return DONE


def _end_with_driver(pipe: int) -> None:
    """The driver holds the other end of the pipe for as long as it lives."""
    while os.read(pipe, 1):
        pass
    os._exit(NOBODY_TOLD)
