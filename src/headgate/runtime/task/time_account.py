"""Where a task's time goes: seconds it waited, by reason; what is left was work."""

from __future__ import annotations

import enum
from collections.abc import Callable


class Wait(enum.IntEnum):
    """Why a task waits."""

    IDLE = 0  # for input
    SOFT = 1  # for its output, between two inputs
    HARD = 2  # for its output, within one input


class TimeAccount:
    """Written by the task's thread, read by any: all of it is one tuple, replaced as a whole. Times are seconds."""

    __slots__ = ("_clock", "_state")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._state: tuple[tuple[float, ...], Wait | None, float] = ((0.0,) * len(Wait), None, 0.0)

    def begin(self, why: Wait) -> None:
        """The task waits from now on."""
        self._state = self._totals(), why, self._clock()

    def end(self) -> None:
        """The task goes on."""
        self._state = self._totals(), None, 0.0

    def reset(self) -> None:
        """Forget what was before the job began."""
        self._state = (0.0,) * len(Wait), None, 0.0

    def seconds(self, why: Wait) -> float:
        """Waited so far, the wait that is under way included."""
        return self._totals()[why]

    def _totals(self) -> tuple[float, ...]:
        waited, current, since = self._state
        if current is None:
            return waited
        totals = list(waited)
        totals[current] += self._clock() - since
        return tuple(totals)
