"""`metrics`: the processor time that measuring and reporting cost in `keyed-sum`.

The same job runs with `metrics=True` and with `metrics=False`, both at the same time: the speed of a shared machine
changes from second to second, and changes for both. Each job then has half of the machine, so what metrics cost in each
second counts twice as much as in a job that runs alone. A cost is the difference between a large and a small job, which
excludes the start-up. The costs of two jobs differ by some percent for the whole life of the jobs, however long they
are, so each side of a pair is the sum of `JOBS` large and small jobs. Pairs run until their mean ratio is known to
`HALF_WIDTH`, or `MOST` pairs have run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import mean, stdev
from typing import Any, Final

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildProcess, serve
from headgate.bench.host import processor_seconds
from headgate.bench.keyed_job import SETTINGS, keyed_sum_seconds
from headgate.bench.keyed_sum import Sizes
from headgate.bench.report import CaseResult, Figure, ratios

#: The most that metrics may cost, as a share of the processor time without them.
COST: Final = 0.02
#: The precision at which no more pairs run: half the width of the 95 % interval of the mean ratio.
HALF_WIDTH: Final = 0.01
SIZES, QUICK_SIZES = Sizes(5_000_000, 40_000_000), Sizes(500_000, 2_000_000)
FEWEST, MOST = 20, 40
#: The jobs of each size on each side of a pair.
JOBS: Final = 4
#: Seconds that a pair of jobs may take.
_TIMEOUT: Final = 600.0


def run(options: Options) -> CaseResult:
    """Measure the cost of metrics in pairs of jobs, one with metrics and one without. Return the costs and ratios."""
    sizes = QUICK_SIZES if options.quick else SIZES
    fewest, most = (2, 2) if options.quick else (FEWEST, MOST)
    costs: dict[bool, list[float]] = {True: [], False: []}
    with MetricsPair() as pair:
        pair.processor_seconds(sizes.small)  # the first jobs import everything
        for number in range(most):
            options.say(f"metrics: pair {number + 1}")
            for measures, cost in _costs(pair, sizes).items():
                costs[measures].append(cost)
            if number + 1 >= fewest and half_width(ratios(costs[True], costs[False])) <= HALF_WIDTH:
                break
    pairs = ratios(costs[True], costs[False])
    return CaseResult(
        case="metrics",
        target=f"metrics cost under {COST:.0%} of the processor time of keyed-sum, known to {HALF_WIDTH:.0%}",
        met=mean(pairs) < 1 + COST and half_width(pairs) <= HALF_WIDTH,
        figures=(
            Figure("with metrics", "s per million rows", tuple(costs[True])),
            Figure("without metrics", "s per million rows", tuple(costs[False])),
            Figure("with / without", "", pairs),
            Figure("mean of with / without", "", (mean(pairs),)),
            Figure("half-width of the mean", "", (half_width(pairs),)),
        ),
        settings=SETTINGS,
    )


def _costs(pair: MetricsPair, sizes: Sizes) -> dict[bool, float]:
    """Return the processor seconds per million rows with and without metrics, as a mean of `JOBS` jobs."""
    runs = [(pair.processor_seconds(sizes.small), pair.processor_seconds(sizes.large)) for _ in range(JOBS)]
    rows = JOBS * (sizes.large - sizes.small)
    return {
        measures: sum(large[measures] - small[measures] for small, large in runs) * 1e6 / rows
        for measures in (True, False)
    }


def half_width(values: tuple[float, ...]) -> float:
    """Return half the width of the 95 % interval of a mean."""
    return float(1.96 * stdev(values) / len(values) ** 0.5)


class MetricsPair:
    """Two child processes. One runs its jobs with metrics, the other one without. Use it as a context manager."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._children: dict[bool, ChildProcess] = {}
        self._threads = ThreadPoolExecutor(2)

    def __enter__(self) -> MetricsPair:
        self._open.enter_context(self._threads)
        for measures in (True, False):
            child = ChildProcess(f"keyed-sum with metrics={measures}", [sys.executable, "-P", "-m", __name__])
            self._children[measures] = self._open.enter_context(child)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def processor_seconds(self, rows: int) -> Mapping[bool, float]:
        """Run both jobs at the same time. Return the processor seconds of each, by whether it has metrics."""
        answers = {
            measures: self._threads.submit(child.ask, {"rows": rows, "metrics": measures}, _TIMEOUT)
            for measures, child in self._children.items()
        }
        return {measures: answer.result()["seconds"] for measures, answer in answers.items()}


def _job_seconds(request: dict[str, Any]) -> dict[str, Any]:
    """Return the processor seconds that a job takes in this process."""
    before = processor_seconds()
    keyed_sum_seconds(request["rows"], metrics=request["metrics"])
    return {"seconds": processor_seconds() - before}


if __name__ == "__main__":
    serve(_job_seconds)
