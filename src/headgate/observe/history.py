"""The history of a job's metrics, in bounded memory. Older values have a lower resolution.

Values are in bins of one second for the last hour, then in bins of ten seconds, then of a hundred seconds. A bin has
the smallest, the mean and the largest value of each series, so a short peak stays visible.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

#: The widths of bins in seconds, and how many bins of each width are kept: one hour, six hours, two days.
LEVELS: Final = ((1.0, 3600), (10.0, 2160), (100.0, 1728))
#: The most memory that the bins of one job take, in bytes.
MAX_BYTES: Final = 64 << 20
#: Seconds by which the clock may be set back without effect: meanwhile, values join the current bin.
_STEP: Final = 10.0


class Point(NamedTuple):
    """One bin of a series. `begin` is the time of its begin, in seconds on the clock of `record`."""

    begin: float
    least: float
    mean: float
    largest: float


class _Bin:
    """The values of all series in one bin. The three rows are smallest, mean and largest; a column is a series.

    A series without a value in this bin has NaN.
    """

    __slots__ = ("begin", "values", "weight")

    def __init__(self, begin: float, series: int, weight: int = 1) -> None:
        self.begin = begin
        self.weight = weight  # the number of first-level bins in this bin
        self.values: npt.NDArray[np.float32] = np.full((3, series), np.nan, np.float32)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


class History:
    """The bins of all series of one job. Only one thread may use it. Sizes are in bytes, times in seconds."""

    def __init__(self, levels: Iterable[tuple[float, int]] = LEVELS, max_bytes: int = MAX_BYTES) -> None:
        self._widths, self._limits = zip(*levels, strict=True)
        self._levels: list[deque[_Bin]] = [deque() for _ in self._widths]
        self._max_bytes = max_bytes
        self._numbers: dict[str, int] = {}
        self._open: list[tuple[int, float]] = []  # the values of the current bin of the first level
        self._begin = -math.inf
        self.nbytes = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all series, the oldest first."""
        return tuple(self._numbers)

    def record(self, at: float, values: Mapping[str, float | None]) -> None:
        """Add values by the name of their series.

        `at` is in seconds. If it is much less than before, the clock was set back: bins that lie after it are dropped.
        None and NaN do not count as values.
        """
        begin = math.floor(at / self._widths[0]) * self._widths[0]
        if begin < self._begin - _STEP:
            self._forget_after(begin)
        if begin > self._begin:
            self._close()
            self._begin = begin
        for name, value in values.items():
            if value is not None and value == value:
                self._open.append((self._numbers.setdefault(name, len(self._numbers)), float(value)))

    def _forget_after(self, begin: float) -> None:
        self._open.clear()
        self._begin = -math.inf
        for width, bins in zip(self._widths, self._levels, strict=True):
            while bins and bins[-1].begin + width > begin:
                self.nbytes -= bins.pop().nbytes

    def points(self, name: str, begin: float = -math.inf, end: float = math.inf) -> list[Point]:
        """Return the bins of one series that begin at `begin` or later and before `end`, the oldest first.

        Bins without a value are left out.
        """
        number = self._numbers.get(name)
        if number is None:
            return []
        points = []
        for each in self._bins(begin, end):
            if number < each.values.shape[1] and not np.isnan(each.values[0, number]):
                points.append(Point(each.begin, *each.values[:, number].tolist()))
        values = [value for each, value in self._open if each == number]
        if values and begin <= self._begin < end:
            points.append(Point(self._begin, min(values), sum(values) / len(values), max(values)))
        return points

    def _bins(self, begin: float, end: float) -> Iterator[_Bin]:
        """Yield the closed bins that begin at `begin` or later and before `end`, the oldest first."""
        for level in reversed(self._levels):
            first, last = (bisect_left(level, at, key=lambda each: each.begin) for at in (begin, end))
            yield from islice(level, first, last)

    def _close(self) -> None:
        """Make a bin of the values of the current second."""
        if not self._open:
            return
        closed = _Bin(self._begin, len(self._numbers))
        numbers = np.array([number for number, _ in self._open])
        values = np.array([value for _, value in self._open])
        counts = np.bincount(numbers, minlength=len(self._numbers))
        seen = counts > 0
        closed.values[1, seen] = np.bincount(numbers, values, len(self._numbers))[seen] / counts[seen]
        for row, reduce in ((0, np.fmin), (2, np.fmax)):
            reduce.at(closed.values[row], numbers, values.astype(np.float32))
        self._open.clear()
        self._append(0, closed)
        self._shrink()

    def _append(self, level: int, added: _Bin) -> None:
        self._levels[level].append(added)
        self.nbytes += added.nbytes
        if len(self._levels[level]) > self._limits[level]:
            self._coarsen(level)

    def _coarsen(self, level: int) -> None:
        """Join the oldest bins of a level into one bin of the next level. Of the last level, drop the oldest bin."""
        bins = self._levels[level]
        if level + 1 == len(self._levels):
            self.nbytes -= bins.popleft().nbytes
            return
        width = self._widths[level + 1]
        begin = math.floor(bins[0].begin / width) * width
        oldest = []
        while bins and bins[0].begin < begin + width:
            oldest.append(bins.popleft())
        coarser = self._levels[level + 1]
        if coarser and coarser[-1].begin == begin:  # `_shrink` has joined the first part of this bin before
            oldest.append(coarser.pop())
        self.nbytes -= sum(each.nbytes for each in oldest)
        self._append(level + 1, _joined(begin, oldest))

    def _shrink(self) -> None:
        """Join or drop the oldest bins of the level with the most bytes, until all bins fit into the memory."""
        while self.nbytes > self._max_bytes:
            sizes = [sum(each.nbytes for each in level) for level in self._levels]
            self._coarsen(sizes.index(max(sizes)))


def _joined(begin: float, bins: list[_Bin]) -> _Bin:
    joined = _Bin(begin, max(each.values.shape[1] for each in bins), sum(each.weight for each in bins))
    stack = np.full((len(bins), *joined.values.shape), np.nan, np.float32)
    for place, each in zip(stack, bins, strict=True):
        place[:, : each.values.shape[1]] = each.values
    is_there = ~np.isnan(stack[:, 0])
    seen = is_there.any(axis=0)
    weights = is_there[:, seen] * np.array([[each.weight] for each in bins])
    joined.values[0, seen] = np.nanmin(stack[:, 0, seen], axis=0)
    joined.values[1, seen] = np.nansum(stack[:, 1, seen] * weights, axis=0) / weights.sum(axis=0)
    joined.values[2, seen] = np.nanmax(stack[:, 2, seen], axis=0)
    return joined
