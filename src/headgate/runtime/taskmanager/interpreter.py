"""What Python's interpreter takes from a process: garbage collection, and waits for the interpreter lock."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

from headgate.runtime.task.thread_clock import ThreadClock


class CollectorClock:
    """The seconds that Python's garbage collector has taken in this process, and its runs."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = 0.0
        self.seconds = 0.0
        self.collections = 0

    def start(self) -> None:
        """Measure from now on."""
        gc.callbacks.append(self._on_phase)

    def stop(self) -> None:
        """Measure no longer."""
        gc.callbacks.remove(self._on_phase)

    def _on_phase(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = self._clock()
        else:
            self.seconds += self._clock() - self._began
            self.collections += 1


class LockProbe:
    """Estimates how long a thread of this process waits for the interpreter lock, from a thread that wakes by a timer.

    A wake-up is late because no processor was free (its run delay says how long) or because another thread held the
    lock. The thread that wakes makes and calls it.
    """

    def __init__(self) -> None:
        self._thread = ThreadClock()
        self._thread.start()
        self._run_delay = self._thread.run_delay()
        self.seconds: float | None = 0.0 if self._run_delay is not None else None
        self.wakeups = 0

    def note(self, late: float) -> None:
        """Count a wake-up that was `late` seconds after its time."""
        run_delay, before = self._thread.run_delay(), self._run_delay
        self._run_delay = run_delay
        if self.seconds is not None and run_delay is not None and before is not None:
            self.seconds += max(0.0, late - (run_delay - before))
            self.wakeups += 1
