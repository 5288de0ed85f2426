"""`headgate demo --kill`: ends a Python worker, and then an executor, while the job runs on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

import headgate as hg
from headgate.spark.processes import executor_of


class Killer:
    """Strikes when the job has started as often as it had to, and has completed another checkpoint since the last
    strike. `say` tells people of it."""

    #: How often it strikes in all.
    STRIKES: Final = 2

    def __init__(self, job: hg.JobHandle, say: Callable[[str], None]) -> None:
        self._job = job
        self._say = say
        self._victims = [("Python worker", _itself), ("Spark executor", executor_of)]
        self._strikes = 0
        self._completed = 0

    def look(self) -> None:
        """Strike if it is time."""
        completed = [each.checkpoint for each in self._job.checkpoints() if each.failure is None]
        runs = self._job.status() == "RUNNING" and self._job.restarts == self._strikes
        if not self._victims or not runs or not completed or completed[-1] <= self._completed:
            return
        what, process_of = self._victims.pop(0)
        worker = self._job._master._attempt.members[self._strikes].pid
        assert worker is not None  # it has registered
        process = process_of(worker)
        self._strikes += 1
        self._completed = completed[-1]
        self._say(f"Killing a {what}, process {process}, after checkpoint {self._completed} ...")
        os.kill(process, signal.SIGKILL)


def _itself(worker: int) -> int:
    return worker
