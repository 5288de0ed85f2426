"""Latencies counted in buckets of 2 %, as arrays of counts that can be added."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: The bucket of a latency is this number times log2 of its microseconds. The last bucket is at 2^27 us, two minutes.
STEPS = 32
BUCKETS = 27 * STEPS

Counts = npt.NDArray[np.int64]


def buckets(late_us: npt.NDArray[Any]) -> Counts:
    """Return the bucket of each latency. Latencies are in microseconds; less than one microsecond counts as one."""
    steps: Counts = (np.log2(np.maximum(late_us, 1)) * STEPS).astype(np.int64)
    return np.minimum(steps, BUCKETS - 1)


def percentile(counts: Counts, percent: float) -> float:
    """Return the milliseconds within which `percent` % of the latencies stay; nan if there are no latencies.

    This is the upper edge of a bucket, so it is at most 2.2 % too long, and never too short.
    """
    total = int(counts.sum())
    if not total:
        return float("nan")
    bucket = int(np.searchsorted(counts.cumsum(), total * percent / 100))
    return float(2 ** ((bucket + 1) / STEPS) / 1000)
