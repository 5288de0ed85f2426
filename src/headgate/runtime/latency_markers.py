"""Latency markers: how often sources send them, and what operators make of those that reach them.

A marker carries the time at which its source sent it. It goes one way through the job, past user code but behind the
rows of its channel, in whatever queues they wait. So its age at an operator is what a row's would be that needed no
work. Clocks of different machines are taken to agree.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.records.elements import LatencyMarker

#: Buckets are exact up to twice this many microseconds, and then this many to each power of two: 3 % wide.
_BUCKETS: Final = 32
_BITS: Final = _BUCKETS.bit_length()


class MarkerTimer:
    """One source subtask's markers, one each `interval` seconds."""

    def __init__(self, interval: float, source: int, subtask: int) -> None:
        self._interval = interval
        self._source = source
        self._subtask = subtask
        self._next = time.monotonic()

    def take_due(self) -> LatencyMarker | None:
        """A marker of now, if it is time for one. What was missed while the source could not send is not made up."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + self._interval
        return LatencyMarker(round(time.time() * 1e6), self._source, self._subtask)

    @property
    def patience(self) -> float:
        """Seconds until the next."""
        return max(0.0, self._next - time.monotonic())


class LatencyHistogram:
    """Counts of latencies in microseconds, in buckets."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, microseconds: int) -> None:
        """One more; what clocks that disagree make negative counts as none."""
        value = max(0, microseconds)
        shift = max(0, value.bit_length() - _BITS)
        self._counts[shift * _BUCKETS + (value >> shift)] += 1

    def points(self) -> list[tuple[int, int]]:
        """Bucket and count, as plain values for `summary`; any thread may ask."""
        return list(self._counts.copy().items())


def summary(histograms: Iterable[Sequence[tuple[int, int]]]) -> dict[str, Any]:
    """What several histograms say together: `count`, and in seconds `p50_s`, `p99_s`, `max_s`, each the upper end of
    its bucket."""
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
