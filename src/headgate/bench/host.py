"""Keep processors awake, and read the processor time that a job uses and that the host of a virtual machine takes.

An idle virtual core returns to the host. The host may take tens of milliseconds to give the core back. Batches that
arrive every few milliseconds then wait for a core, not for the engine. The cores of a low-latency machine never sleep
(`idle=poll`). To get the same effect, this module asks the kernel to wait in a loop (Linux: "PM QoS"). If the kernel
cannot do this, or the user may not ask for it, a process on each core runs whenever nothing else runs. Such a core is
never idle, so the kernel does not move waiting threads to it: then latencies are higher.
"""

from __future__ import annotations

import os
import struct
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
#: The longest time in microseconds that a core may take to wake up is written here. It holds until the file is closed.
_WAKE_UP_LIMIT = Path("/dev/cpu_dma_latency")
#: The driver that puts idle cores to sleep, or "none".
_SLEEP_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")
_STEAL = 8  # the column of /proc/stat


@contextmanager
def cores_awake() -> Iterator[bool]:
    """Keep all cores of this process awake during the block. Yield False if the system cannot do this."""
    with ExitStack() as stack:
        if _forbids_sleep(stack):
            yield True
        elif hasattr(os, "SCHED_IDLE"):
            _spin(stack)
            yield True
        else:
            yield False


def _forbids_sleep(stack: ExitStack) -> bool:
    """Ask the kernel that no core sleeps until the end of the stack. Return whether it does so."""
    try:
        if _SLEEP_DRIVER.read_text().strip() == "none":
            return False
        limit = stack.enter_context(_WAKE_UP_LIMIT.open("wb", buffering=0))
        limit.write(struct.pack("i", 0))
    except OSError:
        return False
    return True


def _spin(stack: ExitStack) -> None:
    """Start a process of the lowest priority on each core. It ends with the stack."""
    for core in sorted(os.sched_getaffinity(0)):
        command = [sys.executable, "-I", "-S", "-c", _SPIN, str(core), str(os.getpid())]
        spinner = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(spinner.kill)
        assert spinner.stdout is not None
        spinner.stdout.readline()


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
