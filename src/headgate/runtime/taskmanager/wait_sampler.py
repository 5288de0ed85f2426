"""`WaitSampler`: samples for what the threads of tasks wait."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Final

from headgate.runtime.task.task import Task
from headgate.runtime.task.task_builder import BuiltTask
from headgate.runtime.task.time_account import TASK

#: The mean seconds between two samples of all threads, while a task works without a processor, and at other times.
_INTERVAL: Final = 0.05
_LONG_INTERVAL: Final = 0.25
#: The share of its time for which such a task is busy, but neither uses a processor nor waits for one.
_WAITS: Final = 0.1
#: The largest share of a processor that samples may use.
_SHARE: Final = 0.0025
#: The pauses differ from the mean by up to this share. Samples are then not in step with periodic work.
_JITTER: Final = 0.5


class WaitSampler:
    """Samples the threads of the tasks in `built`, a list that grows, in a thread of its own.

    The thread that reports metrics cannot do it: where tasks compute, this thread waits long for the interpreter lock,
    many times in one report.
    """

    def __init__(self, built: Sequence[BuiltTask]) -> None:
        self._built = built
        #: When the last sample was taken, and the seconds that each task had worked without a processor until then.
        self._before = 0.0
        self._off: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-wait-sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until the thread has ended."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self.sample()):
            pass

    def sample(self) -> float:
        """Take a sample of each thread, and return the seconds until the next sample."""
        now, began = time.monotonic(), time.thread_time()
        tasks = [built.task for built in tuple(self._built)]
        for task in tasks:
            task.thread.sample(now)
        interval = _INTERVAL if self._waits(now, tasks) else _LONG_INTERVAL
        pause = max(interval, (time.thread_time() - began) / _SHARE)
        return pause * random.uniform(1 - _JITTER, 1 + _JITTER)

    def _waits(self, now: float, tasks: Sequence[Task]) -> bool:
        """Return whether a task has worked without a processor for a share of the time since the last sample.

        Only samples can then say for what the task waits, so more of them are worth their cost.
        """
        before, self._before = self._before, now
        off_before, self._off = self._off, [_off_processor(task) for task in tasks]
        most = max((off - last for off, last in zip(self._off, off_before, strict=False)), default=0.0)
        return most > _WAITS * (now - before)


def _off_processor(task: Task) -> float:
    """Return the seconds for which a task has worked, without its time on a processor or waiting for one."""
    return sum(task.times.seconds()[TASK:]) - (task.thread.cpu() or 0.0) - (task.thread.run_delay() or 0.0)
