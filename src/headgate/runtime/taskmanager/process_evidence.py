"""Measures what slows a TaskManager's process down, for the metrics under "machine"."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from headgate.runtime.process_identity import process_identity
from headgate.runtime.processor_limits import ProcessorLimits
from headgate.runtime.task.thread_clock import ThreadClock
from headgate.runtime.taskmanager.interpreter import CollectorClock, LockProbe
from headgate.runtime.taskmanager.machine import Machine

#: The least seconds from one reading of the counters to the next: a reading takes a third of a report's time.
_PERIOD: Final = 0.9


class ProcessEvidence:
    """Measures what slows a process down: the machine, the garbage collector and the interpreter lock.

    One thread calls `start`, `note_wakeup` and `stop`. This thread wakes by a timer, and reports how late it woke.
    """

    def __init__(self) -> None:
        self._machine = Machine()
        self._limits = ProcessorLimits()
        self._collector = CollectorClock()
        self._probe: LockProbe | None = None
        self._counters: dict[str, Any] = {}

    def start(self) -> None:
        self._probe = LockProbe()
        self._collector.start()

    def stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()
        self._collector.stop()
        self._machine.close()

    def note_wakeup(self, late: float) -> None:
        """Record that the calling thread woke `late` seconds after its timer was due."""
        assert self._probe is not None  # it has started
        self._probe.note(late)

    def collected(self, thread: ThreadClock) -> float:
        """Return the seconds in which the garbage collector ran on a measured thread."""
        return self._collector.of(thread)

    def read(self, now: float, *, is_last: bool) -> dict[str, Any]:
        """Return the counters of this process for the key "machine" of the job's metrics.

        They are at most a second old. If the report is the last one, they are new. `now` is in seconds.
        """
        if is_last or not self._counters or now - self._counters["clock_s"] >= _PERIOD:
            self._counters = self._read(now)
        return self._counters

    def _read(self, now: float) -> dict[str, Any]:
        return {
            "clock_s": now,
            **self._machine.read(),
            "cores": os.cpu_count(),
            **self._limits.read(),
            **process_identity(),
            "cpu_s": time.process_time(),
            "collections": self._collector.collections,
            "collection_s": self._collector.seconds,
            "lock_wait_s": None if self._probe is None else self._probe.seconds,
            "lock_probes": 0 if self._probe is None else self._probe.wakeups,
        }
