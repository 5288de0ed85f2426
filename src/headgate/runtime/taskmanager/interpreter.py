"""Measures the time that Python's interpreter costs: garbage collection, and waits for the interpreter lock."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

from headgate.runtime.task.thread_clock import ThreadClock, clock_of_this_thread


class CollectorClock:
    """Measures the runs of Python's garbage collector in this process.

    `seconds` is the time that the collector has taken, and `collections` is the number of its runs. `of` is the part of
    a thread: the collector runs on the thread that makes the object that begins the run.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = 0.0
        self._of_threads: dict[ThreadClock, float] = {}
        self.seconds = 0.0
        self.collections = 0

    def start(self) -> None:
        """Measure from now on."""
        gc.callbacks.append(self._on_phase)

    def stop(self) -> None:
        """Stop measuring."""
        gc.callbacks.remove(self._on_phase)

    def of(self, thread: ThreadClock) -> float:
        """Return the seconds that the collector has taken on a measured thread."""
        return self._of_threads.get(thread, 0.0)

    def _on_phase(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = self._clock()
            return
        seconds = self._clock() - self._began
        self.seconds += seconds
        self.collections += 1
        thread = clock_of_this_thread()
        if thread is not None:
            self._of_threads[thread] = self._of_threads.get(thread, 0.0) + seconds


class LockProbe:
    """Estimates how long a thread of this process waits for the interpreter lock.

    A thread that wakes by a timer creates the object, and calls `note` at each wake-up. A wake-up is late if no
    processor was free, or if another thread held the lock. The thread's run delay is the time without a free processor;
    the rest is the wait for the lock. `seconds` is the total of these waits over `wakeups` wake-ups, or None on a
    system that does not provide the run delay.
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

    def stop(self) -> None:
        """Stop measuring. The thread that created the object calls this."""
        self._thread.stop()
