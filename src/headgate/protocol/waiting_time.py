"""How long something has waited in all, up to now if it still waits."""

from __future__ import annotations

from collections.abc import Callable


def no_clock() -> float:
    """Stand for a clock where waits are not measured: all of them take 0 s."""
    return 0.0


class WaitingTime:
    """The seconds that a channel has waited for one reason. Only a start or an end of a wait reads the clock.

    One thread at a time starts and ends waits. Any thread may read, without a lock: `_open` is replaced as a whole, and
    a reader reads the clock before the value that it uses. So what it reads never decreases.
    """

    __slots__ = ("_clock", "_open", "is_waiting")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.is_waiting = False
        #: The time at which the wait began, None between waits; and the seconds of earlier waits.
        self._open: tuple[float | None, float] = (None, 0.0)

    def note(self, waits: bool) -> None:
        """Start a wait or end it. It changes nothing if this was so before."""
        if waits == self.is_waiting:
            return
        self.is_waiting = waits
        now = self._clock()
        since, before = self._open
        self._open = (now, before) if since is None else (None, before + max(0.0, now - since))

    @property
    def seconds(self) -> float:
        """The seconds of all waits, those of the present one until now."""
        since, before = self._open
        if since is None:
            return before
        now = self._clock()
        since, before = self._open
        return before if since is None else before + max(0.0, now - since)
