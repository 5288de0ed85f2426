"""What the host of a virtual machine does to latencies, and how to keep it from that.

A virtual core that has nothing to do is handed back to the host, which may take tens of milliseconds to give it out
again. Batches that come each few milliseconds then wait for a core, not for us. A machine for low latency is set up so
that its cores never sleep (`idle=poll`); a process on each core that runs when nothing else does has the same effect.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

#: Arguments: the core, and the process without which this one ends. Run with the least of all priorities.
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
_STEAL = 8  # of the columns of /proc/stat


@contextmanager
def cores_awake() -> Iterator[bool]:
    """No core of ours sleeps meanwhile; gives False where the system cannot do that (it is Linux's to offer)."""
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
    """How long the host has run others while a core of ours had work, all cores together; 0 where nobody counts it."""
    try:
        total = stat.read_text().splitlines()[0].split()
        return int(total[_STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0
