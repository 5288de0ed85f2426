"""One process, its own cores: TaskManagers of a machine do not run on each other's.

The threads of a TaskManager take turns at one interpreter lock. Where the kernel moves them between cores, each turn
costs a wake-up across cores and cold caches: two TaskManagers on two cores did keyed sums at half the rate until each
kept to its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share(cores: set[int], rank: int, processes: int) -> set[int]:
    """The cores of process number `rank` of so many: an equal part, or one of them in turn when there are too few."""
    ordered = sorted(cores)
    if processes >= len(ordered):
        return {ordered[rank % len(ordered)]}
    return set(ordered[rank::processes])


@contextmanager
def own_cores(rank: int, processes: int) -> Iterator[None]:
    """Keep the calling thread, and all that it starts, to its share of the cores this process may use; afterwards the
    thread has them all again. Where the system cannot do that (it is Linux's to offer), nothing happens."""
    if processes < 2 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, share(before, rank, processes))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
