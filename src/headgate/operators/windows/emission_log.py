"""How many rows an operator had emitted at which moment, in bounded memory."""

from __future__ import annotations

_MOST_POINTS = 1024


class EmissionLog:
    """Points (wall-clock seconds, rows emitted until then), at most 1024; when full, every second one goes."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def record(self, now: float, total: int) -> None:
        """Note that by `now` `total` rows had been emitted; neither goes back."""
        if len(self._points) == _MOST_POINTS:
            self._points = self._points[1::2]
        self._points.append((now, total))

    def points(self) -> list[tuple[float, int]]:
        """The points there are, oldest first; a copy."""
        return list(self._points)
