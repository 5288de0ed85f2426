"""How a job is, in a line: for people who wait for one at a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headgate.runtime.checkpointing.checkpoint_record import CheckpointRecord
    from headgate.runtime.master.job import JobHandle, JobResult

#: Environment variable by which `headgate run` asks for such lines.
SHOWN: Final = "HEADGATE_PROGRESS"
#: How much time is between two of them at least, seconds.
PERIOD: Final = 10.0


def state_of(status: str, restarts: int, checkpoints: Sequence[CheckpointRecord]) -> str:
    """A job in a line."""
    words = [status]
    if restarts:
        words.append(f"started again {restarts} time{'s' if restarts > 1 else ''}")
    if checkpoints:
        last = checkpoints[-1]
        end = "complete" if last.failure is None else "failed"
        words.append(f"{last.kind} {last.checkpoint} {end}, {last.duration:.2f} s, {last.size:,} bytes")
    return ", ".join(words)


def is_shown() -> bool:
    return SHOWN in os.environ and sys.stderr.isatty()


def wait_and_tell(job: JobHandle, tell: Callable[[str], None], period: float = PERIOD) -> JobResult:
    """As `job.wait` does; `tell` is given the job's state now and then, where it is another than before."""
    told = ""
    while True:
        try:
            return job.wait(period)
        except TimeoutError:
            state = state_of(job.status(), job.restarts, job.checkpoints())
            if state != told:
                tell(f"job {job._name!r}: {state}")
            told = state


def to_terminal(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
