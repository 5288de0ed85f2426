"""`latency`: of `keyed-sum`, from each row's due time to the keyed operator, at fractions of the rate found.

Open loop: a row's due time is fixed by its number, so a stall counts against every row that was due in it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hdrh.histogram import HdrHistogram

from headgate.bench.due_times import read_histogram
from headgate.bench.idle_timer import lateness
from headgate.bench.keyed_job import SETTINGS, keyed_sum_seconds, run_paced
from headgate.bench.keyed_sum import OURS, QUICK_OURS
from headgate.bench.options import Options
from headgate.bench.report import CaseResult, Figure

FRACTIONS = (0.1, 0.5)
#: The 99th percentile must be below this many milliseconds, or below so many times that of an idle timer.
TARGET_MS = 10.0
NOISE_FACTOR = 3.0
ROUNDS = 3


def run(options: Options) -> CaseResult:
    """Find the rate; then rounds of idle timer and both fractions of that rate."""
    seconds, rounds = (3.0, 1) if options.quick else (20.0, ROUNDS)
    rates = [(QUICK_OURS if options.quick else OURS).rate(keyed_sum_seconds) for _ in range(rounds)]
    rate = Figure("rate found", "rows/s", tuple(rates))
    noise: list[float] = []
    late: dict[float, list[HdrHistogram]] = {fraction: [] for fraction in FRACTIONS}
    for number in range(rounds):
        options.say(f"latency: round {number + 1}")
        noise.append(_milliseconds(lateness(seconds / 2), 99))
        for fraction, histograms in late.items():
            histograms.append(_paced(fraction * rate.median, seconds))
    idle = Figure("idle timer p99", "ms", tuple(noise))
    figures = [rate, idle]
    for fraction, histograms in late.items():
        for percentile in (50.0, 99.0, 99.9):
            values = tuple(_milliseconds(histogram, percentile) for histogram in histograms)
            figures.append(Figure(f"p{percentile:g} at {fraction:.0%}", "ms", values))
    bound = max(TARGET_MS, NOISE_FACTOR * idle.median)
    met = all(figure.median < bound for figure in figures if figure.name.startswith("p99 "))
    target = f"p99 below {TARGET_MS:g} ms, or below {NOISE_FACTOR:g} x the idle timer's where that is more"
    return CaseResult("latency", target, met, tuple(figures), {**SETTINGS, "seconds": seconds})


def _paced(rate: float, seconds: float) -> HdrHistogram:
    with tempfile.TemporaryDirectory() as folder:
        run_paced(round(rate * seconds), rate, Path(folder))
        return read_histogram(Path(folder))


def _milliseconds(histogram: HdrHistogram, percentile: float) -> float:
    return float(histogram.get_value_at_percentile(percentile)) / 1000
