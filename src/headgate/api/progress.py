"""Shows the state of a job as lines of text, for users who wait for the job at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
    from headgate.runtime.master.job import JobHandle, JobResult

#: The environment variable with which `headgate run` asks for these lines.
SHOWN: Final = "HEADGATE_PROGRESS"
#: The least time between two lines, in seconds.
PERIOD: Final = 10.0


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


def is_shown() -> bool:
    """Return whether to show lines: `headgate run` asks for them, and standard error is a terminal."""
    return SHOWN in os.environ and sys.stderr.isatty()


def wait_and_show(job: JobHandle, show: Callable[[str], None], period: float = PERIOD) -> JobResult:
    """Wait for a job, as `job.wait` does. Every `period` seconds, call `show` with the job's state if the state has
    changed."""
    shown = ""
    while True:
        try:
            return job.wait(period)
        except TimeoutError:
            state = state_of(job.status(), job.restarts, job.checkpoints())
            if state != shown:
                show(f"job {job._name!r}: {state}")
            shown = state


def to_terminal(line: str) -> None:
    """Write a line to standard error."""
    print(line, file=sys.stderr, flush=True)
