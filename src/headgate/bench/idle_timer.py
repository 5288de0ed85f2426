"""How late a paced timer is on this machine when nothing else of ours runs: the noise below every latency figure."""

from __future__ import annotations

import time

from hdrh.histogram import HdrHistogram

PERIOD = 0.001
#: Microseconds a histogram of ours can hold, to three significant digits.
LONGEST = 60_000_000


def new_histogram() -> HdrHistogram:
    """A histogram of whole microseconds."""
    return HdrHistogram(1, LONGEST, 3)


def lateness(duration: float) -> HdrHistogram:
    """By how many microseconds a thread that sleeps until each millisecond wakes late, over `duration` seconds."""
    histogram = new_histogram()
    begin = time.perf_counter()
    for tick in range(round(duration / PERIOD)):
        due = begin + tick * PERIOD
        time.sleep(max(0.0, due - time.perf_counter()))
        histogram.record_value(min(round((time.perf_counter() - due) * 1e6), LONGEST))
    return histogram
