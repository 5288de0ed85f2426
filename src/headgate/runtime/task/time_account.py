"""How a task spends its time: the seconds it waited, by reason. The rest was work."""

from __future__ import annotations

import enum
from collections.abc import Callable


class Wait(enum.IntEnum):
    """Why a task waits."""

    IDLE = 0  # for input
    SOFT = 1  # for its output, between two inputs
    HARD = 2  # for its output, within one input


class TimeAccount:
    """The waiting times of one task, in seconds. The task's thread writes it, any thread reads it: all of it is one
    tuple, which is replaced as a whole."""

    __slots__ = ("_clock", "_state")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._state: tuple[tuple[float, ...], Wait | None, float] = ((0.0,) * len(Wait), None, 0.0)

    def begin(self, why: Wait) -> None:
        """Start a wait."""
        self._state = self._totals(), why, self._clock()

    def end(self) -> None:
        """End the wait."""
        self._state = self._totals(), None, 0.0

    def reset(self) -> None:
        """Forget the time before the job started."""
        self._state = (0.0,) * len(Wait), None, 0.0

    def seconds(self, why: Wait) -> float:
        """Return the seconds waited so far for this reason, with the current wait."""
        return self._totals()[why]

    def _totals(self) -> tuple[float, ...]:
        waited, current, since = self._state
        if current is None:
            return waited
        totals = list(waited)
        totals[current] += self._clock() - since
        return tuple(totals)
