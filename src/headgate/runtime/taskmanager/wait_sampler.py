"""`WaitSampler`: samples for what the threads of tasks wait."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from headgate.runtime.task.task_builder import BuiltTask

#: The mean seconds between two samples of all threads, and the largest share of a processor that they may use.
_INTERVAL: Final = 0.05
_SHARE: Final = 0.005
#: The pauses differ from the mean by up to this share. Samples are then not in step with periodic work.
_JITTER: Final = 0.5


class WaitSampler:
    """Samples the threads of the tasks in `built`, a list that grows, in a thread of its own.

    The thread that reports metrics cannot do it: where tasks compute, this thread waits long for the interpreter lock,
    many times in one report.
    """

    def __init__(self, built: Sequence[BuiltTask]) -> None:
        self._built = built
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-wait-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until the thread has ended."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._sample()):
            pass

    def _sample(self) -> float:
        """Take a sample of each thread, and return the seconds until the next sample."""
        now, began = time.monotonic(), time.thread_time()
        for built in tuple(self._built):
            built.task.thread.sample(now)
        pause = max(_INTERVAL, (time.thread_time() - began) / _SHARE)
        return pause * random.uniform(1 - _JITTER, 1 + _JITTER)
