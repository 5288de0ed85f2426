"""Gives each TaskManager process its own cores.

The threads of a TaskManager take turns at one interpreter lock. If the kernel moves threads between cores, each turn
costs a wake-up across cores and cold caches. Two TaskManagers on two cores computed keyed sums at half the rate until
each process stayed on its own core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(cores: set[int], rank: int, processes: int) -> set[int]:
    """Return the cores of process number `rank` of `processes`: an equal share of all cores.

    If there are fewer cores than processes, processes get one core each, in turn.
    """
    ordered = sorted(cores)
    if processes >= len(ordered):
        return {ordered[rank % len(ordered)]}
    return set(ordered[rank::processes])


@contextmanager
def own_cores(rank: int, processes: int) -> Iterator[None]:
    """Keep the calling thread, and all threads that it starts, on their share of the cores within the context.

    Does nothing on a system without CPU affinity: only Linux has it.
    """
    if processes < 2 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share(before, rank, processes))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
