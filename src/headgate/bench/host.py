"""Keep processors awake, and read the processor time that a job uses and that the host of a virtual machine takes.

An idle virtual core returns to the host. The host may take tens of milliseconds to give the core back. Batches that
arrive every few milliseconds then wait for a core, not for the engine. The cores of a low-latency machine never sleep
(`idle=poll`). To get the same effect, this module starts a process on each core that runs whenever nothing else runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

#: A program that keeps a core busy, with the lowest of all priorities. Its arguments are the core and the parent
#: process. It ends with its parent.
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
    """Keep all cores of this process awake during the block. Yield False if the system cannot do this."""
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
    """Return how many seconds, summed over all cores, the host ran other machines while a core here had work.

    Return 0 if the system does not count these seconds.
    """
    try:
        total = stat.read_text().splitlines()[0].split()
        return int(total[_STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def processor_seconds() -> float:
    """Return the processor seconds of this process and of all its descendants, including ended ones."""
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return float(sum(used.user + used.system + used.children_user + used.children_system for used in times))
