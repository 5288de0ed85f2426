"""The states of a job."""

from __future__ import annotations

import enum


class JobState(enum.Enum):
    """A job is CREATED, then RUNNING. After a failure it is RESTARTING. The other states are its end."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
