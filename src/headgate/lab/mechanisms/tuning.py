"""`tuning`: what happens if the limit of a mechanism is too small or too large?

One source offers twice the rows that its sink takes. Mechanisms with a limit run with small and large limits. Credit
has no such limit, and runs beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

import headgate as hg
from headgate.bench.case_options import Options
from headgate.bench.report import ratios
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.contestants import BATCH, counting
from headgate.lab.mechanisms.made_runs import Plan, judged
from headgate.lab.mechanisms.observed import MechanismRun, observe, overhead
from headgate.lab.mechanisms.verdicts import CREDIT, Better, Measured, figures, losses
from headgate.lab.places import A2, B4, Place, processes
from headgate.lab.probe import Probe, Slow

#: Rows per second that the sink takes, and what the source offers as a share of it.
CAPACITY: Final = 20_000.0
OFFERED: Final = 2.0
#: `GUARD`, the limit of network memory, is divided by this.
_FACTOR: Final = 8.0
#: A mechanism starves its sink if the sink gets less than this share of what it takes.
FULL_LOAD: Final = 0.95
#: A mechanism floods if it has this many times as many rows in flight as credit.
FLOODS: Final = 2.0
BETTER: Final[Better] = {"carried": "more", "in flight at most": "less"}


@dataclass(frozen=True, slots=True)
class TuningTimes:
    """The seconds of a run, and those at its start that do not count."""

    seconds: float
    settling: float
    rounds: int


FULL: Final = TuningTimes(seconds=3.0, settling=1.0, rounds=3)
QUICK: Final = TuningTimes(seconds=2.0, settling=0.5, rounds=1)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The limits of a mechanism in ascending order.

    `throttle` makes the throttle for one of these limits. `unit` is the unit of the limits.
    """

    unit: str
    limits: tuple[float, ...]
    throttle: Callable[[Any], Any]


T = hg.throttle
SWEEPS: Final[dict[str, Sweep]] = {
    "fixed-rate": Sweep("of what the sink takes", (0.25, 0.5, 0.75, 1.5), lambda share: T.FixedRate(share * CAPACITY)),
    "max-pending": Sweep("messages", (1, 2, 4, 16, 64, 256), T.MaxPending),
    "max-pending-no-acks": Sweep("messages", (1, 16, 256), lambda limit: T.MaxPending(limit, acking=False)),
    "storm-status": Sweep("messages", (4, 16, 64, 256), lambda queue: T.StormStatus(receive_buffer=queue)),
    "jstorm-stages": Sweep("messages", (4, 16, 64, 256), lambda queue: T.JStormStages(receive_buffer=queue)),
}
#: The limits that must starve the sink, and those that must flood it. Chosen in virtual time, before the first run on
#: processes.
STARVES: Final = {("fixed-rate", 0.25), ("fixed-rate", 0.5), ("fixed-rate", 0.75), ("max-pending", 1)}
#: Without acknowledgements no limit holds, also the smallest.
FLOODED: Final = {
    ("fixed-rate", 1.5),
    ("max-pending", 256),
    ("max-pending-no-acks", 1),
    ("max-pending-no-acks", 256),
    ("storm-status", 256),
    ("jstorm-stages", 256),
}
NOTHING: Final = "no throttle"

#: The runs of each mechanism, by its limit. Mechanisms without a limit have the limit 0.
Runs = dict[str, dict[float, list[MechanismRun]]]


def run(options: Options, place_of: Callable[[int], Place] = lambda _number: processes) -> Experiment:
    """Run each mechanism with each limit, round by round. Raises HeadgateError if what all are compared with fails."""
    times = QUICK if options.quick else FULL
    limits: dict[str, tuple[str, float]] = {}
    plan: Plan = []
    for number in range(times.rounds):
        for name, limit, chosen in contestants(only_ends=options.quick):
            label = _label(name, limit)
            limits[label] = name, limit
            plan.append((label, partial(one_round, place_of(number), chosen, times)))
    return judged(
        "tuning", options, plan, lambda runs: report(_by_limit(runs, limits), times), needed=(CREDIT, NOTHING)
    )


def _by_limit(made: Mapping[str, list[MechanismRun]], limits: Mapping[str, tuple[str, float]]) -> Runs:
    runs: Runs = {}
    for label, rounds in made.items():
        name, limit = limits[label]
        runs.setdefault(name, {})[limit] = rounds
    return runs


def contestants(*, only_ends: bool = False) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Yield each mechanism with each of its limits, or only with the smallest and the largest, and its options."""
    yield CREDIT, 0.0, {"buffer_timeout": 0}
    yield NOTHING, 0.0, counting(None, _FACTOR)
    for name, sweep in SWEEPS.items():
        for limit in (sweep.limits[0], sweep.limits[-1]) if only_ends else sweep.limits:
            yield name, limit, counting(sweep.throttle(limit), _FACTOR)


def _label(name: str, limit: float) -> str:
    return f"{name} {limit:g}" if limit else name


def one_round(place: Place, options: Mapping[str, Any], times: TuningTimes) -> MechanismRun:
    flow = Flow((B4,), OFFERED * CAPACITY, batch_rows=BATCH, ends_on_time=True)
    return observe(place, options, Flows({A2: flow}, times.seconds), Probe(slows={B4: Slow(CAPACITY, saved=0.0)}))


def carried(run: MechanismRun, times: TuningTimes) -> float:
    """Return the rows/s that reached the sink. In a job that did not end, it is 0."""
    return run.seen[B4].rate(times.settling, times.seconds) if B4 in run.seen else 0.0


def in_flight(run: MechanismRun, times: TuningTimes) -> float:
    """Return the most rows in flight. A peak between two reports of a TaskManager does not show."""
    return float(max(0, run.most_in_flight(0, times.seconds)))


def report(runs: Runs, times: TuningTimes) -> Experiment:
    """Return what each limit carries and holds, and whether limits starve and flood as expected."""
    measured: Measured = {}
    shares: dict[tuple[str, float], float] = {}
    held: dict[tuple[str, float], float] = {}
    full = [carried(each, times) for each in runs[NOTHING][0.0]]
    for name, by_limit in runs.items():
        for limit, rounds in by_limit.items():
            label = f"{name}, {limit:g} {SWEEPS[name].unit}" if limit else name
            rates = ratios([carried(each, times) for each in rounds], full)
            flights = tuple(in_flight(each, times) for each in rounds)
            measured[label] = {
                "carried": ("of the rate without a throttle", rates),
                "in flight at most": ("rows", flights),
                "until the source stops": ("s", [each.stopped_at(0.0) for each in rounds]),
                **overhead(rounds),
            }
            shares[name, limit], held[name, limit] = median(rates), median(flights)
    stuck = {
        _label(name, limit): "does not end"
        for name, by_limit in runs.items()
        for limit, rounds in by_limit.items()
        if any(each.is_stuck for each in rounds)
    }
    missed = {**dict(_misses(shares, held)), **stuck}
    return Experiment(
        case="tuning",
        target=f"credit carries {FULL_LOAD:.0%} of what the sink takes; too small limits carry less, and too large "
        f"limits have {FLOODS:g} times as many rows in flight"
        + "".join(f"; missed: {label} {did}" for label, did in missed.items()),
        met=not missed,
        figures=tuple(figures(measured, ())),
        findings=tuple(losses(measured, BETTER)),
        settings={
            "rows/s that the sink takes": CAPACITY,
            "offered": OFFERED,
            "rows of a batch": BATCH,
            "network memory divided by": _FACTOR,
        },
        missed=tuple(missed),
        plots=(
            _plot("carried, of the rate without a throttle", shares),
            _plot("rows in flight at most", held, log_y=True),
        ),
    )


def _misses(
    shares: Mapping[tuple[str, float], float], held: Mapping[tuple[str, float], float]
) -> Iterator[tuple[str, str]]:
    """Yield who did something else than expected, and what."""
    if shares[CREDIT, 0.0] < FULL_LOAD:
        yield CREDIT, f"carries {shares[CREDIT, 0.0]:.0%}"
    for key, share in shares.items():
        if key in STARVES and share >= FULL_LOAD:
            yield _label(*key), f"carries {share:.0%}"
        if key in FLOODED and held[key] < FLOODS * held[CREDIT, 0.0]:
            yield _label(*key), f"has {held[key]:,.0f} rows in flight"


def _plot(label: str, values: Mapping[tuple[str, float], float], log_y: bool = False) -> Plot:
    """Return a plot over the limit. Limits are shown as a share of the largest one of their mechanism."""
    series = []
    for name, sweep in SWEEPS.items():
        points = [(limit, values[name, limit]) for limit in sweep.limits if (name, limit) in values]
        series.append(
            Series(
                f"{name} (1: {sweep.limits[-1]:g} {sweep.unit})",
                tuple(limit / sweep.limits[-1] for limit, _ in points),
                tuple(value for _, value in points),
            )
        )
    series.append(Series(CREDIT, (min(series[1].x), 1.0), (values[CREDIT, 0.0],) * 2))
    return Plot(
        title=label.partition(",")[0],
        x="limit, as a share of the largest one",
        y=label,
        series=tuple(series),
        log_x=True,
        log_y=log_y,
    )
