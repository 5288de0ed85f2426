"""Latencies counted by their size, in steps of 2 %: arrays of counts that add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: A latency is counted by its log2 in microseconds times this, up to 2^27 us: two minutes.
STEPS = 32
BUCKETS = 27 * STEPS

Counts = npt.NDArray[np.int64]


def buckets(late_us: npt.NDArray[Any]) -> Counts:
    """The bucket of each latency; less than a microsecond counts as one."""
    steps: Counts = (np.log2(np.maximum(late_us, 1)) * STEPS).astype(np.int64)
    return np.minimum(steps, BUCKETS - 1)


def percentile(counts: Counts, percent: float) -> float:
    """Milliseconds that so many percent of the latencies stay within; nan when none were counted."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    bucket = int(np.searchsorted(counts.cumsum(), total * percent / 100))
    return float(2 ** (bucket / STEPS) / 1000)
