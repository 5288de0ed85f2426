"""`keyed-sum`: rows/s of a keyed window aggregation that exchanges every row, compared with Flink SQL and Spark.

Each rate comes from a small and a large job: the difference of their rows, divided by the difference of their times.
The start-up, which both have, therefore does not count. Headgate and Flink run in turn, round by round, so that both
see the same noise of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from headgate.bench.case_options import Options
from headgate.bench.conversation import ChildFailed
from headgate.bench.keyed_job import PARALLELISM, SETTINGS, keyed_sum_seconds, source_seconds
from headgate.bench.peers.flink import Flink
from headgate.bench.peers.spark_structured import spark_rates
from headgate.bench.report import CaseResult, Figure, Skipped, ratios

TARGET = 8.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The rows of the small and of the large run."""

    small: int
    large: int

    def rate(self, seconds: Callable[[int], float]) -> float:
        """Return the rows/s: the difference of the rows of the two runs, divided by the difference of their times.

        `seconds(rows)` returns the time of a run of `rows` rows.
        """
        return (self.large - self.small) / (seconds(self.large) - seconds(self.small))


OURS, FLINKS = Sizes(5_000_000, 105_000_000), Sizes(1_000_000, 13_000_000)
QUICK_OURS, QUICK_FLINKS = Sizes(2_000_000, 22_000_000), Sizes(500_000, 4_500_000)
ROUNDS = 5
SPARK_ROWS, SPARK_BATCHES = 10_000_000, 10


@dataclass(slots=True, kw_only=True)
class _Rates:
    """Rows/s by job, round by round."""

    ours: list[float] = field(default_factory=list)
    our_source: list[float] = field(default_factory=list)
    flink: list[float] = field(default_factory=list)
    flink_source: list[float] = field(default_factory=list)
    flink_two_phase: list[float] = field(default_factory=list)
    spark: list[float] = field(default_factory=list)


def run(options: Options) -> CaseResult:
    """Measure Headgate and Flink in turn, then Spark. Without Flink, measure one round of Headgate alone."""
    rates, skipped = _Rates(), []
    try:
        with Flink(PARALLELISM, options.say) as flink:
            flink.seconds("one-phase", FLINKS.small)  # the first run starts the JVM
            for number in range(2 if options.quick else ROUNDS):
                options.say(f"keyed-sum: round {number + 1}")
                _our_round(rates, options)
                _flink_round(rates, options, flink)
    except ChildFailed as error:
        skipped.append(Skipped("Flink", str(error)))
        rates = _Rates()
        _our_round(rates, options)
    try:
        options.say("keyed-sum: Spark Structured Streaming")
        rates.spark += spark_rates(SPARK_ROWS, 2 if options.quick else SPARK_BATCHES, PARALLELISM)
    except ChildFailed as error:
        skipped.append(Skipped("Spark Structured Streaming", str(error)))
    figures = _figures(rates)
    met = any(figure.name == "ratio to Flink" and figure.median >= TARGET for figure in figures)
    target = f"at least {TARGET:g} times Flink SQL, one-phase"
    return CaseResult(
        case="keyed-sum", target=target, met=met, figures=tuple(figures), settings=SETTINGS, skipped=tuple(skipped)
    )


def _our_round(rates: _Rates, options: Options) -> None:
    sizes = QUICK_OURS if options.quick else OURS
    rates.ours.append(sizes.rate(keyed_sum_seconds))
    rates.our_source.append(sizes.rate(source_seconds))


def _flink_round(rates: _Rates, options: Options, flink: Flink) -> None:
    sizes = QUICK_FLINKS if options.quick else FLINKS
    rates.flink.append(sizes.rate(lambda rows: flink.seconds("one-phase", rows)))
    rates.flink_source.append(sizes.rate(lambda rows: flink.seconds("source-only", rows)))
    rates.flink_two_phase.append(sizes.rate(lambda rows: flink.seconds("two-phase", rows)))


def _figures(rates: _Rates) -> list[Figure]:
    figures = [Figure("Headgate", "rows/s", tuple(rates.ours))]
    if rates.flink:
        net = _net(rates.ours, rates.our_source) / _net(rates.flink, rates.flink_source)
        figures += [
            Figure("Flink SQL, one-phase", "rows/s", tuple(rates.flink)),
            Figure("ratio to Flink", "", ratios(rates.ours, rates.flink)),
            Figure("ratio to Flink, net of sources", "", (net,)),
            Figure("Flink SQL, source only", "rows/s", tuple(rates.flink_source)),
            Figure("Flink SQL, two-phase", "rows/s", tuple(rates.flink_two_phase)),
        ]
    figures.insert(1, Figure("Headgate, source only", "rows/s", tuple(rates.our_source)))
    if rates.spark:
        figures.append(Figure("Spark Structured Streaming", "rows/s", tuple(rates.spark)))
    return figures


def _net(whole: list[float], source: list[float]) -> float:
    """Return the rate of the job without its source. It is computed from medians, because the difference of the two
    times is small and noisy."""
    return 1 / (1 / median(whole) - 1 / median(source))
