"""Shows each job that a script runs, from a thread beside the script."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.api.live_view import JobSight, LiveView, state_of
from headgate.observe.verdict import MEASURING, verdict_of
from headgate.runtime.master.job import JobHandle, has_ended, report
from headgate.web.tunnel import tunnel

#: Seconds between two looks at the jobs.
_LOOK: Final = 0.5
#: A job whose tasks end within so many seconds is not shown: there is nothing to watch.
SHORT: Final = 1.0
_THREAD_TIMEOUT: Final = 5.0


def sight_of(job: JobHandle) -> JobSight:
    """Return what a console shows of a job now."""
    page = job.web_url
    # A user who came by SSH has the browser on another machine.
    far = tunnel(page, socket.gethostname()) if page is not None and "SSH_CONNECTION" in os.environ else None
    is_measured = bool(job.backpressure())
    return JobSight(
        name=report(job)["name"],
        status=job.status(),
        state=state_of(job.status(), job.restarts, job.checkpoints()),
        verdict=verdict_of(job.diagnose()) if is_measured else MEASURING,
        page=page,
        tunnel=far,
    )


def last_line(job: JobHandle) -> str:
    """Return how a job has ended, in a line."""
    result = report(job)
    error = f" ({result['error'].partition(':')[0]})" if result["error"] else ""
    parts = [f"{result['rows_in']:,} rows in", f"{result['rows_out']:,} rows out"]
    if result["duration_s"]:  # only jobs that finish have one
        parts.append(f"{result['duration_s']:.1f} s")
    if result["restarts"]:
        parts.append(f"restarted {result['restarts']} time{'s' if result['restarts'] > 1 else ''}")
    if result["late_rows"]:
        parts.append(f"{result['late_rows']:,} late rows dropped")
    return f"job {result['name']!r} has {result['state'].lower()}{error}: {', '.join(parts)}"


@dataclass(slots=True)
class _Watched:
    """A job that may still run. `since` is when its tasks started, or None. `is_shown` says whether the view shows
    it."""

    job: JobHandle
    since: float | None = None
    is_shown: bool = False


class Watching:
    """Shows running jobs in a `LiveView`. Use it as a context manager. Any thread may call `add`.

    A job appears when its tasks have run for a second. When a job that was shown ends, the view prints one line that
    says how. `_lock` protects changes of the list of jobs.
    """

    def __init__(self, view: LiveView, clock: Callable[[], float] = time.monotonic, look: float = _LOOK) -> None:
        self._view = view
        self._clock = clock
        self._look = look
        self._lock = threading.Lock()
        self._jobs: list[_Watched] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-watching", daemon=True)

    def add(self, job: JobHandle) -> None:
        """Add a job that has started."""
        with self._lock:
            self._jobs.append(_Watched(job))

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(_THREAD_TIMEOUT)

    def _run(self) -> None:
        with self._view:
            while not self._stopped.wait(self._look):
                self._say_what_ended()
                self._view.update([sight_of(each.job) for each in self._jobs if self._runs(each)])
            self._say_what_ended()

    def _runs(self, watched: _Watched) -> bool:
        """Return whether a job's tasks have run for at least `SHORT` seconds."""
        if watched.since is None and watched.job.status() != "CREATED":
            watched.since = self._clock()
        watched.is_shown = watched.since is not None and self._clock() - watched.since >= SHORT
        return watched.is_shown

    def _say_what_ended(self) -> None:
        """Say how jobs have ended, and forget them."""
        with self._lock:
            ended = [each for each in self._jobs if has_ended(each.job)]
            self._jobs = [each for each in self._jobs if each not in ended]
        for each in ended:
            if each.is_shown:
                self._view.say(last_line(each.job))
