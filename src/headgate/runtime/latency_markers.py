"""Latency markers: the schedule by which sources send markers, and histograms of the markers' ages at operators.

A marker carries the time at which its source sent the marker. It follows one path through the job. It waits in the same
queues as the rows of its channel, but no user function processes it. The marker's age at an operator is therefore the
latency of a row without its processing time. The clocks of all machines must agree.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.records.elements import LatencyMarker

#: Below twice this many microseconds, each bucket is 1 us wide. Above, each power of two has this many buckets, so a
#: bucket is at most 3 % wide.
_BUCKETS: Final = 32
_BITS: Final = _BUCKETS.bit_length()


class MarkerTimer:
    """The schedule of one source subtask's markers: one marker every `interval` seconds, the first one at once."""

    def __init__(self, interval: float, source: int, subtask: int) -> None:
        self._interval = interval
        self._source = source
        self._subtask = subtask
        #: The time of the next marker, in seconds of the monotonic clock.
        self.deadline = -math.inf

    def take(self, now: float, moment: float) -> LatencyMarker:
        """Return the marker that is due, and schedule the next marker.

        `now` is the time of the monotonic clock, and `moment` the same time in seconds since the epoch. Markers that
        the source could not send in time are not sent later.
        """
        self.deadline = now + self._interval
        return LatencyMarker(round(moment * 1e6), self._source, self._subtask)


class LatencyHistogram:
    """A histogram of latencies: the number of latencies in each bucket. Latencies are in microseconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, microseconds: int) -> None:
        """Count a latency. A negative latency counts as 0. It occurs if the clocks of two machines disagree."""
        value = max(0, microseconds)
        shift = max(0, value.bit_length() - _BITS)
        self._counts[shift * _BUCKETS + (value >> shift)] += 1

    def points(self) -> list[tuple[int, int]]:
        """Return pairs (bucket, count) for `summary`. Any thread may call this method."""
        return list(self._counts.copy().items())


def summary(histograms: Iterable[Sequence[tuple[int, int]]]) -> dict[str, Any]:
    """Return `count`, `p50_s`, `p99_s` and `max_s` of the sum of several histograms.

    `histograms` are results of `points`. The latencies are in seconds. Each is the upper end of its bucket.
    """
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
