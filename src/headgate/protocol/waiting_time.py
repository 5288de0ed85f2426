"""The total time that a channel has waited for one reason, including a wait that has not ended yet."""

from __future__ import annotations

from collections.abc import Callable


def no_clock() -> float:
    """Return 0. Objects that measure no waits use this function as their clock."""
    return 0.0


class WaitingTime:
    """The seconds that a channel has waited for one reason. `note` reads the clock only when a wait starts or ends.

    One thread at a time starts and ends waits. Any thread may read `seconds` without a lock. `note` replaces `_open` as
    a whole, and `seconds` reads the clock before the value of `_open` that it uses. `seconds` therefore never
    decreases.
    """

    __slots__ = ("_clock", "_open", "is_waiting")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.is_waiting = False
        #: The time at which the wait began, None between waits; and the seconds of earlier waits.
        self._open: tuple[float | None, float] = (None, 0.0)

    def note(self, waits: bool) -> None:
        """Start a wait if `waits` is True, otherwise end the wait. A repeated value changes nothing."""
        if waits == self.is_waiting:
            return
        self.is_waiting = waits
        now = self._clock()
        since, before = self._open
        self._open = (now, before) if since is None else (None, before + max(0.0, now - since))

    @property
    def seconds(self) -> float:
        """The seconds of all waits. A wait that has not ended counts until now."""
        since, before = self._open
        if since is None:
            return before
        now = self._clock()
        since, before = self._open
        return before if since is None else before + max(0.0, now - since)
