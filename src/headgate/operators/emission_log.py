"""`EmissionLog`: records at several times how many rows an operator has emitted so far. Its memory is bounded."""

from __future__ import annotations

_MOST_POINTS = 1024


class EmissionLog:
    """A log of points. A point is a wall-clock time in seconds, and the number of rows emitted until this time.

    The log holds at most 1024 points. A full log drops every second point.
    """

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def record(self, now: float, total: int) -> None:
        """Record that the operator has emitted `total` rows at time `now`. `total` and `now` may not be lower than in
        the last call."""
        if len(self._points) == _MOST_POINTS:
            self._points = self._points[1::2]
        self._points.append((now, total))

    def points(self) -> list[tuple[float, int]]:
        """Return a copy of the points, the oldest first."""
        return list(self._points)
