"""`latency`: of `keyed-sum`, from each row's due time to the keyed operator, at fractions of the rate found.

Open loop: a row's due time is fixed by its number, so a stall counts against every row that was due in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hdrh.histogram import HdrHistogram

from headgate.bench.due_times import read_histogram
from headgate.bench.idle_timer import lateness
from headgate.bench.keyed_job import BUFFER_TIMEOUT, SETTINGS, keyed_sum_seconds, run_paced
from headgate.bench.keyed_sum import OURS, QUICK_OURS
from headgate.bench.options import Options
from headgate.bench.report import CaseResult, Figure

#: The 99th percentile must be below so many times that of an idle timer, where that is more than the target.
NOISE_FACTOR = 3.0
ROUNDS = 3


def run(options: Options) -> CaseResult:
    """At 10 % and 50 % of the rate with the buffer timeout of `keyed-sum`."""
    return measured("latency", options, BUFFER_TIMEOUT, (0.1, 0.5), 10.0)


def measured(case: str, options: Options, buffer_timeout: str, loads: Sequence[float], target_ms: float) -> CaseResult:
    """Find the rate; then rounds of idle timer and all these parts of that rate."""
    seconds, rounds = (3.0, 1) if options.quick else (20.0, ROUNDS)
    rates = [(QUICK_OURS if options.quick else OURS).rate(keyed_sum_seconds) for _ in range(rounds)]
    rate = Figure("rate found", "rows/s", tuple(rates))
    noise: list[float] = []
    late: dict[float, list[HdrHistogram]] = {load: [] for load in loads}
    for number in range(rounds):
        options.say(f"{case}: round {number + 1}")
        noise.append(_milliseconds(lateness(seconds / 2), 99))
        for load, histograms in late.items():
            histograms.append(_paced(load * rate.median, seconds, buffer_timeout))
    idle = Figure("idle timer p99", "ms", tuple(noise))
    figures = [rate, idle]
    for load, histograms in late.items():
        for percentile in (50.0, 99.0, 99.9):
            values = tuple(_milliseconds(histogram, percentile) for histogram in histograms)
            figures.append(Figure(f"p{percentile:g} at {load:.0%}", "ms", values))
    bound = max(target_ms, NOISE_FACTOR * idle.median)
    met = all(figure.median < bound for figure in figures if figure.name.startswith("p99 "))
    target = f"p99 below {target_ms:g} ms, or below {NOISE_FACTOR:g} x the idle timer's where that is more"
    settings = {**SETTINGS, "buffer_timeout": buffer_timeout, "seconds": seconds}
    return CaseResult(case, target, met, tuple(figures), settings)


def _paced(rate: float, seconds: float, buffer_timeout: str) -> HdrHistogram:
    with tempfile.TemporaryDirectory() as folder:
        run_paced(round(rate * seconds), rate, Path(folder), buffer_timeout)
        return read_histogram(Path(folder))


def _milliseconds(histogram: HdrHistogram, percentile: float) -> float:
    return float(histogram.get_value_at_percentile(percentile)) / 1000
