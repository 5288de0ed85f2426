"""Latency markers: when sources send them, and the histograms of their ages at operators.

A marker carries the time at which its source sent it. It takes one way through the job. It passes no user
code, but waits with the rows of its channel in all their queues. So its age at an operator is the latency of a row that
needs no processing. The clocks of the machines must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.records.elements import LatencyMarker

#: Buckets are exact up to twice this many microseconds. Above, each power of two has so many: they are 3 % wide.
_BUCKETS: Final = 32
_BITS: Final = _BUCKETS.bit_length()


class MarkerTimer:
    """The markers of one source subtask, one each `interval` seconds. The first is due at once."""

    def __init__(self, interval: float, source: int, subtask: int) -> None:
        self._interval = interval
        self._source = source
        self._subtask = subtask
        #: When the next marker is due, in seconds of the monotonic clock.
        self.deadline = -math.inf

    def take(self, now: float, moment: float) -> LatencyMarker:
        """Return the marker that is due; `moment` is now, in seconds since the epoch. Markers that were missed while
        the source could not send are not repeated."""
        self.deadline = now + self._interval
        return LatencyMarker(round(moment * 1e6), self._source, self._subtask)


class LatencyHistogram:
    """Counts of latencies in microseconds, in buckets."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, microseconds: int) -> None:
        """Count a latency. A negative one, of clocks that disagree, counts as 0."""
        value = max(0, microseconds)
        shift = max(0, value.bit_length() - _BITS)
        self._counts[shift * _BUCKETS + (value >> shift)] += 1

    def points(self) -> list[tuple[int, int]]:
        """Return buckets and counts, as plain values for `summary`. Any thread may call it."""
        return list(self._counts.copy().items())


def summary(histograms: Iterable[Sequence[tuple[int, int]]]) -> dict[str, Any]:
    """Return `count`, and in seconds `p50_s`, `p99_s` and `max_s` of several histograms, each the upper end of its
    bucket."""
    counts: Counter[int] = Counter()
    for points in histograms:
        for bucket, count in points:
            counts[bucket] += count
    return {
        "count": counts.total(),
        "p50_s": _quantile(counts, 0.5),
        "p99_s": _quantile(counts, 0.99),
        "max_s": _quantile(counts, 1.0),
    }


def _quantile(counts: Mapping[int, int], part: float) -> float:
    wanted, seen = part * sum(counts.values()), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return _upper_end(bucket)
    return 0.0


def _upper_end(bucket: int) -> float:
    shift = max(0, bucket // _BUCKETS - 1)
    return (((bucket - shift * _BUCKETS + 1) << shift) - 1) / 1e6
