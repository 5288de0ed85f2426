"""`EmissionLog`: records how many rows an operator had emitted at which time, in bounded memory."""

from __future__ import annotations

_MOST_POINTS = 1024


class EmissionLog:
    """A log of points (wall-clock time in seconds, rows emitted until then).

    It holds at most 1024 points; a full log drops every second one.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def record(self, now: float, total: int) -> None:
        """Record that `total` rows had been emitted at time `now`. Neither may be lower than before."""
        if len(self._points) == _MOST_POINTS:
            self._points = self._points[1::2]
        self._points.append((now, total))

    def points(self) -> list[tuple[float, int]]:
        """Return a copy of the points, the oldest first."""
        return list(self._points)
