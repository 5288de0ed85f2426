"""Waiting for what a running job comes to."""

from __future__ import annotations

import time
from collections.abc import Callable

import headgate as hg
from headgate.errors import HeadgateError

PATIENCE = 60.0
_POLL_INTERVAL = 0.02


def wait_for(job: hg.JobHandle, condition: Callable[[], bool], experiment: str) -> None:
    """Raises the job's error, or HeadgateError when it ends or nothing comes of it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        is_over = job.status() not in ("CREATED", "RUNNING")  # looked at first, since all is told before the end
        if condition():
            return
        if is_over:
            job.wait()
            raise HeadgateError(f"{experiment}: the job ended before what was waited for")
        if time.monotonic() > deadline:
            raise HeadgateError(f"{experiment}: what was waited for did not come within {PATIENCE:g} s")
        time.sleep(_POLL_INTERVAL)


def held_back_s(job: hg.JobHandle, task: str) -> float:
    """How long the task has waited for its output so far, seconds."""
    return float(job.metrics()["tasks"].get(task, {}).get("soft_backpressured_s", 0.0))


def queued_bytes(job: hg.JobHandle) -> int:
    """Bytes on their way between tasks, wherever they are."""
    return sum(sum(places.values()) for places in job.metrics()["in_flight"])
