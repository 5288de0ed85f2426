"""`latency`: the time in `keyed-sum` from each row's due time to the keyed operator, at shares of the full rate.

The load is open loop: a row's number fixes its due time, so a stall counts for every row that was due during the stall.
The cores are kept awake (see `host`). The highest load also runs with cores that may sleep. A timer that runs beside
the load shows how much of a latency the machine causes (see `idle_timer`).
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hdrh.histogram import HdrHistogram

from headgate.bench.case_options import Options
from headgate.bench.due_times import read_histogram
from headgate.bench.host import cores_awake, stolen_seconds
from headgate.bench.idle_timer import lateness, lateness_beside
from headgate.bench.keyed_job import BUFFER_TIMEOUT, SETTINGS, keyed_sum_seconds, run_paced
from headgate.bench.keyed_sum import OURS, QUICK_OURS
from headgate.bench.report import CaseResult, Figure, Skipped

#: The limit is the target, or this many times the timer's 99th percentile if that is more.
NOISE_FACTOR = 3.0
#: The target in milliseconds.
TARGET_MS = 10.0
ROUNDS = 3


@dataclass(slots=True, kw_only=True)
class _LoadRounds:
    """The measurements at one load, round by round."""

    name: str
    load: float
    awake: bool
    seen: list[HdrHistogram] = field(default_factory=list)
    noise: list[HdrHistogram] = field(default_factory=list)
    stolen: list[float] = field(default_factory=list)

    def measure(self, rate: float, seconds: float, buffer_timeout: str) -> None:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            if self.awake:
                stack.enter_context(cores_awake())
            self.noise.append(stack.enter_context(lateness_beside()))
            before = stolen_seconds()
            run_paced(round(self.load * rate * seconds), self.load * rate, folder, buffer_timeout)
            self.stolen.append(100 * (stolen_seconds() - before) / seconds / len(os.sched_getaffinity(0)))
            self.seen.append(read_histogram(folder))

    def figures(self) -> list[Figure]:
        stolen = Figure(f"taken by the host {self.name}", "%", tuple(self.stolen))
        return [*(self.percentile(percentile) for percentile in (50.0, 99.0, 99.9)), self.timer(), stolen]

    def percentile(self, percentile: float) -> Figure:
        return _figure(f"p{percentile:g} {self.name}", self.seen, percentile)

    def timer(self) -> Figure:
        """Return the 99th percentile of how late the timer beside the load woke up, in milliseconds."""
        return _figure(f"timer p99 beside, {self.name}", self.noise, 99.0)


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """The limit of each load's 99th percentile: `limit(before, beside)` returns it in milliseconds.

    `before` is the timer's 99th percentile on the idle machine, and `beside` the timer's beside the load. Medians of
    `rounds` count. If `before` is not below `steady`, the machine is too noisy, and the case is skipped.
    """

    text: str
    limit: Callable[[float, float], float]
    rounds: int = ROUNDS
    steady: float = math.inf


def run(options: Options) -> CaseResult:
    """Measure at 10 % and 50 % of the rate with the buffer timeout of `keyed-sum`."""
    target = LatencyTarget(
        f"p99 below {TARGET_MS:g} ms, or below {NOISE_FACTOR:g} x the timer's p99 if that is more",
        lambda before, beside: max(TARGET_MS, NOISE_FACTOR * before, NOISE_FACTOR * beside),
    )
    return measured("latency", options, BUFFER_TIMEOUT, (0.1, 0.5), target)


def measured(
    case: str, options: Options, buffer_timeout: str, loads: Sequence[float], target: LatencyTarget
) -> CaseResult:
    """Find the full rate, then measure rounds of the idle timer and of each load.

    `loads` are shares of the full rate. The last load is also measured with cores that may sleep.
    """
    seconds, rounds = (3.0, 1) if options.quick else (20.0, target.rounds)
    sizes = QUICK_OURS if options.quick else OURS
    rate = Figure("rate found", "rows/s", tuple(sizes.rate(keyed_sum_seconds) for _ in range(rounds)))
    judged = [_LoadRounds(name=f"at {load:.0%}", load=load, awake=True) for load in loads]
    beside = _LoadRounds(name=f"at {loads[-1]:.0%}, cores asleep when idle", load=loads[-1], awake=False)
    noise: list[float] = []
    for number in range(rounds):
        options.say(f"{case}: round {number + 1}")
        with cores_awake():
            noise.append(_milliseconds(lateness(seconds / 2), 99))
        for load in (*judged, beside):
            load.measure(rate.median, seconds, buffer_timeout)
    idle = Figure("timer p99 before", "ms", tuple(noise))
    met = all(load.percentile(99.0).median < target.limit(idle.median, load.timer().median) for load in judged)
    noisy = f"the idle timer's p99 is {idle.median:.2g} ms, not below {target.steady:g} ms: the machine is too noisy"
    settings = {**SETTINGS, "buffer_timeout": buffer_timeout, "seconds": seconds}
    settings |= {f"p99 of the rounds {load.name}, ms": load.percentile(99.0).listed for load in judged}
    figures = (rate, idle, *(figure for load in (*judged, beside) for figure in load.figures()))
    return CaseResult(
        case=case, target=target.text, met=met, figures=figures, settings=settings,
        skipped=() if idle.median < target.steady else (Skipped(case, noisy),),
    )  # fmt: skip


def _figure(name: str, histograms: Sequence[HdrHistogram], percentile: float) -> Figure:
    return Figure(name, "ms", tuple(_milliseconds(histogram, percentile) for histogram in histograms))


def _milliseconds(histogram: HdrHistogram, percentile: float) -> float:
    return float(histogram.get_value_at_percentile(percentile)) / 1000
