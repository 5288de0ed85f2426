"""How a task spends its time, in seconds by bucket: waiting, by reason, and working, by what works."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final


class Wait(enum.IntEnum):
    """Why a task waits."""

    INPUT = 0
    OUTPUT_SOFT = 1  # for room in its output, between two inputs
    OUTPUT_HARD = 2  # for room in its output, within one input
    CHECKPOINT = 3  # for the barriers of a checkpoint, or to stop with one
    CLOSED = 4  # its input has ended; its consumers have not processed all of its output


#: Buckets of the task's own work. Each operator of its chain has one more, see `TimeAccount.add_bucket`.
TASK: Final = len(Wait)  #: takes buffers, deserialises them, runs its mail and its barriers
WRITE: Final = TASK + 1  #: partitions and serialises its output
SNAPSHOT: Final = TASK + 2  #: takes its state for a checkpoint
_BUCKETS: Final = TASK + 3


class TimeAccount:
    """The seconds that one task has spent, by bucket. A task is in one bucket at any time.

    The task's thread switches. One other thread may read at the same time, without a lock: `_open` is replaced as a
    whole, and the reader reads the clock first, then `_open`, then the seconds. So what it reads never decreases.
    """

    __slots__ = ("_clock", "_open", "_seconds")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = [0.0] * _BUCKETS
        #: The current bucket, the time of the switch to it, and its seconds before that.
        self._open: tuple[int, float, float] = (TASK, clock(), 0.0)

    def add_bucket(self) -> int:
        """Before the task runs: add a bucket, and return its number."""
        self._seconds.append(0.0)
        return len(self._seconds) - 1

    @property
    def current(self) -> int:
        """The current bucket. Any thread may read it."""
        return self._open[0]

    def switch(self, bucket: int) -> int:
        """Spend the time in another bucket from now on. Returns the bucket until now."""
        now = self._clock()
        previous, since, before = self._open
        self._seconds[previous] = before + now - since
        self._open = (bucket, now, self._seconds[bucket])
        return previous

    def reset(self) -> None:
        """Forget the time before the job started."""
        self._seconds[:] = [0.0] * len(self._seconds)
        self._open = (self._open[0], self._clock(), 0.0)

    def seconds(self) -> list[float]:
        """Return the seconds so far, by bucket, with those of the current one until now."""
        now = self._clock()
        bucket, since, before = self._open
        seconds = self._seconds.copy()
        seconds[bucket] = before + max(0.0, now - since)
        return seconds


class Unmeasured(TimeAccount):
    """The account of a task whose time is not measured: a switch reads no clock, and all seconds are 0."""

    __slots__ = ()

    def switch(self, bucket: int) -> int:
        return TASK

    def reset(self) -> None: ...

    def seconds(self) -> list[float]:
        return self._seconds.copy()


def time_account(clock: Callable[[], float], measures: bool) -> TimeAccount:
    """Return the account of a new task. With `measures` False it measures nothing."""
    return TimeAccount(clock) if measures else Unmeasured(clock)
