"""The influence of a virtual machine's host on latencies, and how to avoid it.

An idle virtual core returns to the host, which may take tens of milliseconds to give it back. Batches that arrive every
few milliseconds then wait for a core, not for the engine. The cores of a low-latency machine never sleep (`idle=poll`).
A process on each core that runs when nothing else does has the same effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: Arguments: the core, and the parent process; it ends with its parent. It runs with the lowest of all priorities.
_SPIN = """
import os, sys
core, parent = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""
_STEAL = 8  # the column of /proc/stat


@contextmanager
def cores_awake() -> Iterator[bool]:
    """Keep all cores of this process awake during the block; yield False on systems other than Linux."""
    if not hasattr(os, "SCHED_IDLE"):
        yield False
        return
    with ExitStack() as stack:
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, "-I", "-S", "-c", _SPIN, str(core), str(os.getpid())]
            spinner = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(spinner.kill)
            assert spinner.stdout is not None
            spinner.stdout.readline()
        yield True


def stolen_seconds(stat: Path = Path("/proc/stat")) -> float:
    """Return the seconds, over all cores, in which the host ran other machines though a core here had work.

    0 where the system does not count them.
    """
    try:
        total = stat.read_text().splitlines()[0].split()
        return int(total[_STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0
