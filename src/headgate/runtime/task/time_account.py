"""Measure how a task spends its time. Each bucket counts the seconds of one reason to wait, or of one kind of work."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final


class Wait(enum.IntEnum):
    """The reasons why a task waits."""

    INPUT = 0  # for the next batch
    OUTPUT_SOFT = 1  # for room in its output, before it takes the next batch
    OUTPUT_HARD = 2  # for room in its output, in the middle of a batch
    CHECKPOINT = 3  # for the other barriers of a checkpoint, or because the job stops with a checkpoint
    CLOSED = 4  # for its consumers to process all of its output, after its input has ended
    THROTTLED = 5  # for its throttle, such as a fixed rate, before it takes the next batch
    READER = 6  # for the thread of its source's reader, which reads the next rows
    INTERPRETER = 7  # for other tasks of its process to compute, see `turn_token`


#: The buckets of the task's own work. Each operator of its chain has a bucket too, see `TimeAccount.add_bucket`.
TASK: Final = len(Wait)  #: The task takes buffers, deserialises them, runs its mail and handles barriers.
WRITE: Final = TASK + 1  #: The task partitions and serialises its output.
SNAPSHOT: Final = TASK + 2  #: The task takes its state for a checkpoint.
_BUCKETS: Final = TASK + 3


class TimeAccount:
    """The seconds that one task has spent, by bucket. A task is in one bucket at any time.

    The task's thread calls `switch`. Another thread may call `seconds` at the same time, without a lock. `switch`
    replaces `_open` as a whole. `seconds` reads the clock first, then `_open`, then `_seconds`. The seconds that it
    returns therefore never decrease.
    """

    __slots__ = ("_clock", "_open", "_seconds")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = [0.0] * _BUCKETS
        #: The current bucket, the time of the switch to this bucket, and the bucket's seconds before the switch.
        self._open: tuple[int, float, float] = (TASK, clock(), 0.0)

    def add_bucket(self) -> int:
        """Add a bucket, and return its number. Call it before the task runs."""
        self._seconds.append(0.0)
        return len(self._seconds) - 1

    @property
    def current(self) -> int:
        """The current bucket. Any thread may read it."""
        return self._open[0]

    def switch(self, bucket: int) -> int:
        """Count the time from now on in another bucket. Returns the previous bucket."""
        now = self._clock()
        previous, since, before = self._open
        self._seconds[previous] = before + now - since
        self._open = (bucket, now, self._seconds[bucket])
        return previous

    def reset(self) -> None:
        """Set all seconds to 0. The task calls this when the job starts."""
        self._seconds[:] = [0.0] * len(self._seconds)
        self._open = (self._open[0], self._clock(), 0.0)

    def seconds(self) -> list[float]:
        """Return the seconds of each bucket until now, the current bucket included."""
        now = self._clock()
        bucket, since, before = self._open
        seconds = self._seconds.copy()
        seconds[bucket] = before + max(0.0, now - since)
        return seconds


class Unmeasured(TimeAccount):
    """The account of a task whose time is not measured. `switch` reads no clock, and all seconds are 0."""

    __slots__ = ()

    def switch(self, bucket: int) -> int:
        return TASK

    def reset(self) -> None: ...

    def seconds(self) -> list[float]:
        return self._seconds.copy()


def time_account(clock: Callable[[], float], measures: bool) -> TimeAccount:
    """Return the account of a new task. If `measures` is False, the account measures nothing."""
    return TimeAccount(clock) if measures else Unmeasured(clock)
