"""Shows running jobs on a console: on a terminal as lines that change in place, elsewhere as lines of a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live

from headgate.observe.finding import Severity
from headgate.observe.verdict import Verdict

if TYPE_CHECKING:
    from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord

#: What a line says of a job: its status, and the key of its verdict, which begins with the severity.
Said = tuple[str, ...]
#: Elsewhere than on a terminal, the least time between two lines about one job, in seconds.
QUIET: Final = 10.0
#: What a line says of a job that keeps up again, by the severity before.
_NO_LONGER: Final = {Severity.BEHIND.name: "no longer behind", Severity.STUCK.name: "no longer stuck"}


def state_of(status: str, restarts: int, checkpoints: Sequence[CheckpointRecord]) -> str:
    """Return the state of a job in one line: its status, its restarts, and its last checkpoint."""
    parts = [status]
    if restarts:
        parts.append(f"restarted {restarts} time{'s' if restarts > 1 else ''}")
    if checkpoints:
        last = checkpoints[-1]
        end = "complete" if last.failure is None else "failed"
        parts.append(f"{last.kind} {last.checkpoint} {end}, {last.duration:.2f} s, {last.size:,} bytes")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSight:
    """What a console shows of a running job. `page` is the address of its page, or None. `tunnel` is the command with
    which another machine reaches the page, or None if it needs none."""

    name: str
    status: str
    state: str
    verdict: Verdict
    page: str | None = None
    tunnel: str | None = None

    @property
    def where(self) -> list[str]:
        """Return the lines that lead to the page."""
        lines = [] if self.page is None else [f"  its page: {self.page}"]
        return lines if self.tunnel is None else [*lines, f"  from your own machine, first: {self.tunnel}"]


class LiveView:
    """Shows jobs on a console. Use it as a context manager; one thread calls `update`.

    On a terminal the lines are refreshed in place, and vanish at the end. Elsewhere there is a line when the status or
    the verdict of a job changes, at most one in ten seconds. If the job keeps up, no line says which place limits it:
    one place is always the slowest.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._is_live = console.is_terminal
        # What a script prints to a pipe must not go to the terminal.
        self._live = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=sys.stdout.isatty())
        #: By job: what its last line said, and when.
        self._told: dict[tuple[str, str | None], tuple[Said, float]] = {}

    def __enter__(self) -> LiveView:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def update(self, jobs: Sequence[JobSight], *below: RenderableType) -> None:
        """Show jobs, and on a terminal what else belongs below them."""
        if self._is_live:
            lines = [line for job in jobs for line in (f"job {job.name!r}: {job.state}", *_rest(job))]
            self._live.update(Group(*lines, *below), refresh=True)
            return
        for job in jobs:
            self._tell(job)

    def say(self, line: str) -> None:
        """Write a line that stays."""
        self._console.print(line, soft_wrap=True)

    def _tell(self, job: JobSight) -> None:
        now, said = self._clock(), (job.status, *job.verdict.key)
        which = job.name, job.page
        before, at = self._told.get(which, (None, -math.inf))
        if now - at < QUIET or not _is_news(before, said):
            return
        self._told[which] = said, now
        verdict = _end_of(before, said) if _keeps_up(said) else job.verdict.line
        self.say(f"job {job.name!r} is {job.status}" + (f": {verdict}" if verdict else ""))
        if before is None:
            for line in job.where:
                self.say(line)


def _is_news(before: Said | None, said: Said) -> bool:
    """Return whether a line is due after the line before."""
    if before is not None and before[0] == said[0] and _keeps_up(said):
        return bool(_end_of(before, said))
    return before != said


def _end_of(before: Said | None, said: Said) -> str:
    """Return the words for the end of the verdict before, if the job has the same status and keeps up again."""
    return _NO_LONGER.get(before[1], "") if before is not None and before[0] == said[0] else ""


def _keeps_up(said: Said) -> bool:
    """Return whether the job is at its limit, and keeps up with its sources."""
    return said[1] == Severity.LIMIT.name


def _rest(job: JobSight) -> list[str]:
    return [f"  {job.verdict.line}", *job.where]
