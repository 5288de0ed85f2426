"""Waiting for a condition on a running job."""

from __future__ import annotations

import time
from collections.abc import Callable

import headgate as hg
from headgate.errors import HeadgateError

PATIENCE = 60.0
_POLL_INTERVAL = 0.02


def wait_for(job: hg.JobHandle, condition: Callable[[], bool], experiment: str) -> None:
    """Wait until the condition holds.

    Raises the job's error. Raises HeadgateError if the job ends before the condition holds, or if the condition does
    not hold within `PATIENCE` seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        is_over = job.status() not in (
            "CREATED",
            "RUNNING",
        )  # read before the condition: a job reports all of its results before it ends
        if condition():
            return
        if is_over:
            job.wait()
            raise HeadgateError(f"{experiment}: the job ended before the condition that the experiment waits for")
        if time.monotonic() > deadline:
            raise HeadgateError(
                f"{experiment}: the condition that the experiment waits for did not hold within {PATIENCE:g} s"
            )
        time.sleep(_POLL_INTERVAL)


def held_back_s(job: hg.JobHandle, task: str) -> float:
    """Return the seconds for which the task has waited for room in its output so far."""
    return float(job.metrics()["tasks"].get(task, {}).get("soft_backpressured_s", 0.0))


def queued_bytes(job: hg.JobHandle) -> int:
    """Return the bytes between the job's tasks now: the sum of `in_flight` of the job's metrics."""
    return sum(sum(places.values()) for places in job.metrics()["in_flight"])
