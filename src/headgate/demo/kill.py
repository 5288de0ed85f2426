"""`headgate demo --kill`: kill a Python worker, and then a Spark executor, while the job runs on them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

import headgate as hg
from headgate.spark.processes import executor_of


class Killer:
    """A killer of a job's processes. It kills a Python worker after a checkpoint, and an executor after the restart and
    another checkpoint.

    It calls `say` with a line for each process.
    """

    #: How many processes it kills.
    STRIKES: Final = 2

    def __init__(self, job: hg.JobHandle, say: Callable[[str], None]) -> None:
        self._job = job
        self._say = say
        self._victims = [("Python worker", _itself), ("Spark executor", executor_of)]
        self._strikes = 0
        self._completed = 0

    def strike_if_due(self) -> None:
        """Kill the next process, if the job runs and has completed a checkpoint since the last kill."""
        completed = [record.checkpoint for record in self._job.checkpoints() if record.failure is None]
        runs = self._job.status() == "RUNNING" and self._job.restarts == self._strikes
        if not self._victims or not runs or not completed or completed[-1] <= self._completed:
            return
        kind, process_of = self._victims.pop(0)
        worker = self._job._master._attempt.members[self._strikes].pid
        assert worker is not None  # a running job's TaskManagers have registered with their process ids
        process = process_of(worker)
        self._strikes += 1
        self._completed = completed[-1]
        self._say(f"Killing a {kind}, process {process}, after checkpoint {self._completed} ...")
        os.kill(process, signal.SIGKILL)


def _itself(worker: int) -> int:
    return worker
