"""The processor time that the driver and ZooKeeper use during a run."""

from __future__ import annotations

import time
from collections.abc import Callable


class ProcessorTimes:
    """Counts the processor time of the driver and of ZooKeeper, in seconds, from the time at which it is made.

    `zookeeper` returns the processor time that ZooKeeper has used so far; None: there is no ZooKeeper. What it used
    before, as for its start, does not count. The time of the calling thread, which looks at jobs, does not count for
    the driver.
    """

    def __init__(self, zookeeper: Callable[[], float] | None = None) -> None:
        self._zookeeper = zookeeper
        self._zookeeper_began = 0.0 if zookeeper is None else zookeeper()
        self._driver_began = _others_s()

    def driver(self) -> float:
        return _others_s() - self._driver_began

    def zookeeper(self) -> float | None:
        return None if self._zookeeper is None else self._zookeeper() - self._zookeeper_began


def _others_s() -> float:
    """Return the processor time of this process without that of this thread."""
    return time.process_time() - time.thread_time()
