"""`metrics`: the processor time that measuring and reporting cost in `keyed-sum`.

The same job runs with `metrics=True` and with `metrics=False`, in turn. A cost is the difference between a large and a
small job, which excludes the start-up. Pairs run until their mean ratio is known to `HALF_WIDTH`, or `MOST` pairs have
run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import mean, stdev
from typing import Final

from headgate.bench.case_options import Options
from headgate.bench.host import processor_seconds
from headgate.bench.keyed_job import SETTINGS, keyed_sum_seconds
from headgate.bench.keyed_sum import Sizes
from headgate.bench.report import CaseResult, Figure, ratios

#: The most that metrics may cost, as a share of the processor time without them.
COST: Final = 0.02
#: The precision at which no more pairs run: half the width of the 95 % interval of the mean ratio.
HALF_WIDTH: Final = 0.01
SIZES, QUICK_SIZES = Sizes(5_000_000, 85_000_000), Sizes(500_000, 2_000_000)
FEWEST, MOST = 5, 40


def run(options: Options) -> CaseResult:
    """Measure the cost of metrics in pairs of runs: one with metrics, one without. Return the costs and their ratios.

    The two runs of a pair swap their order from pair to pair.
    """
    sizes = QUICK_SIZES if options.quick else SIZES
    fewest, most = (2, 2) if options.quick else (FEWEST, MOST)
    costs: dict[bool, list[float]] = {True: [], False: []}
    _first_job(sizes.small)
    for number in range(most):
        options.say(f"metrics: pair {number + 1}")
        for measures in (True, False)[:: 1 if number % 2 else -1]:
            costs[measures].append(_cost(sizes, lambda rows, on=measures: keyed_sum_seconds(rows, metrics=on)))  # type: ignore[misc]
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


def half_width(values: tuple[float, ...]) -> float:
    """Return half the width of the 95 % interval of a mean."""
    return float(1.96 * stdev(values) / len(values) ** 0.5)


def _cost(sizes: Sizes, job: Callable[[int], object]) -> float:
    """Return the processor seconds for a million rows."""
    at = [processor_seconds()]
    for rows in (sizes.small, sizes.large):
        job(rows)
        at.append(processor_seconds())
    return ((at[2] - at[1]) - (at[1] - at[0])) * 1e6 / (sizes.large - sizes.small)


def _first_job(rows: int) -> None:
    """Run a job that does not count. After it, the process that forks TaskManagers has imported everything."""
    keyed_sum_seconds(rows)
    time.sleep(1.0)
