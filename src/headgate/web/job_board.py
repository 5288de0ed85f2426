"""The jobs of a program that the page shows: all running jobs, and the jobs that ended last."""

from __future__ import annotations

import threading
from typing import Final

from headgate.web.job_view import JobView

#: How many ended jobs stay visible, and the most memory that they take together, in bytes: as much as one job may take.
#: The job that ended last stays, even if it takes more.
ENDED: Final = 10
ENDED_BYTES: Final = 96 << 20


class JobBoard:
    """The jobs that the page shows. Any thread may use a board; its lock protects the jobs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, JobView] = {}
        #: An HTML file about the jobs, which is complete in itself: the report of the program that runs them.
        self.report: bytes | None = None

    def add(self, job: JobView) -> None:
        """Show a job from now on."""
        with self._lock:
            self._forget_ended()
            self._jobs[job.id] = job

    def remove(self, job: JobView) -> None:
        """Remove a job. Do nothing if the board does not have the job."""
        with self._lock:
            self._jobs.pop(job.id, None)

    def jobs(self) -> list[JobView]:
        """Return the visible jobs, the oldest first."""
        with self._lock:
            self._forget_ended()
            return list(self._jobs.values())

    def find(self, job_id: str) -> JobView | None:
        """Return the job with this id, or None if the board does not have it."""
        with self._lock:
            return self._jobs.get(job_id)

    def clear(self) -> None:
        """Remove all jobs."""
        with self._lock:
            self._jobs.clear()

    def _forget_ended(self) -> None:
        """Remove the oldest ended jobs, so that at most `ENDED` remain and take at most `ENDED_BYTES` together.

        The job that ended last stays, whatever its size.
        """
        ended = [(at, job) for job in self._jobs.values() if (at := job.facts().ended_at) is not None]
        ended.sort(key=lambda each: (each[0], each[1].id), reverse=True)
        size = 0
        for number, (_, job) in enumerate(ended):
            size += job.nbytes
            if number >= ENDED or (number > 0 and size > ENDED_BYTES):
                del self._jobs[job.id]
