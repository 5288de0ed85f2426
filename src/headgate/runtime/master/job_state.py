"""The states of a job."""

from __future__ import annotations

import enum

from headgate.errors import HeadgateError, JobCancelled


class JobState(enum.Enum):
    """A job is CREATED, then RUNNING. After a failure it is RESTARTING. In all other states the job has ended."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


def ended_with(error: HeadgateError | None) -> JobState:
    """Return the state of a job that has ended with this error, or without one."""
    if error is None:
        return JobState.FINISHED
    return JobState.CANCELLED if isinstance(error, JobCancelled) else JobState.FAILED
