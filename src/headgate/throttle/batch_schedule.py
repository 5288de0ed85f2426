"""BatchSchedule: one batch each interval, and one batch at a time, as Spark Streaming runs them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """The times of one batch, in seconds: when it ended, how long it ran, and how long it waited before."""

    number: int
    end: float
    processing: float
    scheduling: float


class BatchSchedule:
    """Says when each batch may start. Batch i is due at `start + (i + 1) * interval`, when its rows are there.

    A batch that is due waits until the batch before it is complete; this time is its *scheduling delay*.

    >>> schedule = BatchSchedule(interval=1.0, start=0.0)
    >>> schedule.next_release
    1.0
    >>> schedule.release(now=1.0)
    0
    >>> schedule.completed(now=2.5)
    CompletedBatch(number=0, end=2.5, processing=1.5, scheduling=0.0)
    >>> schedule.release(now=2.5)
    1
    >>> schedule.completed(now=3.0)
    CompletedBatch(number=1, end=3.0, processing=0.5, scheduling=0.5)
    """

    def __init__(self, interval: float, start: float) -> None:
        self._interval = interval
        self._start = start
        self._number = 0
        self._released_at: float | None = None

    @property
    def _due(self) -> float:
        return self._start + (self._number + 1) * self._interval

    @property
    def next_release(self) -> float:
        """The time at which the next batch may start; infinite while a batch runs."""
        return self._due if self._released_at is None else math.inf

    def release(self, now: float) -> int:
        """Start the next batch, at `next_release` or later. Return its number."""
        self._released_at = now
        return self._number

    def completed(self, now: float) -> CompletedBatch:
        """Note that all sinks have seen the end of the batch that runs. Return its times."""
        assert self._released_at is not None, "no batch runs"
        processing, scheduling = now - self._released_at, self._released_at - self._due
        batch = CompletedBatch(self._number, now, processing, scheduling)
        self._number += 1
        self._released_at = None
        return batch
