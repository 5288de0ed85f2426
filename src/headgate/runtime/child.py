"""Main module of a TaskManager process: reads its plan from standard input, runs, and ends with its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback

from headgate.errors import HeadgateError
from headgate.runtime import taskmanager_process
from headgate.runtime.cores import own_cores


def main() -> int:
    """Exit code 0 when the driver knows how it ended, 3 when it could not be told, 1 for a bug of ours."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who sends it to us means us; the driver then says what we died of
    index, count, host = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    pipe = sys.stdin.buffer
    size = int.from_bytes(pipe.read(8), "big")
    payload = pipe.read(size)
    if len(payload) < size:
        return 3
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), name="headgate-parent-watch", daemon=True).start()
    try:
        with own_cores(index, count):
            taskmanager_process.run(payload, index, host)
    except HeadgateError:
        return 3
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end_with_parent(descriptor: int) -> None:
    """The parent holds the other end of the pipe for as long as it lives."""
    while os.read(descriptor, 1):
        pass
    os._exit(3)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the watch on the pipe never returns, and interpreter shutdown would wait for nothing else
