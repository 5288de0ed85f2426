"""`isolation`: two independent streams share one connection. When one stream stalls, the other must keep its rate.

The streams are A.1 -> B.3 and A.2 -> B.4: A.1 and A.2 in one TaskManager, B.3 and B.4 in another. Each stream runs at
half of the rate that B.3 had at full speed. Then B.4 reads nothing for some seconds; the first second does not count.
The cores are kept awake (see `bench/host.py`). Otherwise p99 would show how long the host takes to give an idle core
back: with a single flow, cores are idle more often.

The experiment also measures two things that no flow control can promise. If B.4 does not sleep but runs a Python loop,
B.3 gets less of the interpreter that both share. In an all-to-all exchange every writer must stop in the end
(`all_to_all.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

from headgate.bench.case_options import Options
from headgate.bench.host import cores_awake
from headgate.bench.report import Figure, Skipped, ratios
from headgate.errors import ConfigError, HeadgateError
from headgate.lab import all_to_all
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import ROW_BYTES, Flow, Flows, by_target
from headgate.lab.places import A1, A2, B3, B4, MODES, Place, processes, spark
from headgate.lab.probe import Probe, Seen, Stall

#: With credit, B.3 must keep this share of its rate, and its p99 may grow by this factor. With plain TCP, B.3's rate
#: must fall below the share `FALLS`.
KEEPS, GROWS = 0.95, 2.0
FALLS = 0.1
SHARE = 0.5
BURNING = "credit, processes, stall burns Python"
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Times:
    """The phases of a round, in seconds.

    `capacity` is a job of its own. A second job has a warm-up, and the time before the stall. Then come the start of
    the stall, which does not count (`settling`), and the part that counts (`stalled`).
    """

    capacity: float
    warm_up: float
    before: float
    settling: float
    stalled: float

    @property
    def stall_at(self) -> float:
        return self.warm_up + self.before

    @property
    def counts_from(self) -> float:
        return self.stall_at + self.settling

    @property
    def end(self) -> float:
        return self.counts_from + self.stalled


FULL = Times(capacity=3.0, warm_up=2.0, before=6.0, settling=1.0, stalled=6.0)
QUICK = Times(capacity=1.5, warm_up=1.0, before=1.5, settling=1.0, stalled=1.5)


@dataclass(slots=True)
class Rounds:
    """The measurements of B.3, round by round: rates in rows/s and latencies in milliseconds."""

    before: list[float] = field(default_factory=list)
    during: list[float] = field(default_factory=list)
    p99_before: list[float] = field(default_factory=list)
    p99_during: list[float] = field(default_factory=list)
    #: Rows by window in the last round.
    arrived: Series | None = None

    def add(self, name: str, seen: Seen, times: Times) -> None:
        before, during = (times.warm_up, times.stall_at), (times.counts_from, times.end)
        self.before.append(seen.rate(*before))
        self.during.append(seen.rate(*during))
        self.p99_before.append(seen.latency(99, *before))
        self.p99_during.append(seen.latency(99, *during))
        self.arrived = seen.curve(name, times.end)

    @property
    def kept(self) -> tuple[float, ...]:
        return ratios(self.during, self.before)

    @property
    def grown(self) -> tuple[float, ...]:
        return ratios(self.p99_during, self.p99_before)

    def figures(self, name: str) -> list[Figure]:
        return [
            Figure(f"{name}: B.3 before", "rows/s", tuple(self.before)),
            Figure(f"{name}: B.3 while B.4 stalls", "rows/s", tuple(self.during)),
            Figure(f"{name}: share of its rate kept", "", self.kept),
            Figure(f"{name}: p99 before", "ms", tuple(self.p99_before)),
            Figure(f"{name}: p99 while B.4 stalls", "ms", tuple(self.p99_during)),
            Figure(f"{name}: growth of p99", "", self.grown),
        ]


def plan(options: Options) -> tuple[Times, int]:
    """Return the phases of a round, and the number of rounds."""
    return (QUICK, 1) if options.quick else (FULL, ROUNDS)


def run(options: Options) -> Experiment:
    """Measure every mode in every place in turn, round by round.

    Three parts use local processes only: a quick run, the stall in a Python loop, and the all-to-all exchange.
    """
    times, rounds = plan(options)
    outcomes: dict[tuple[str, str], Rounds] = {}
    burning = Rounds()
    shared: dict[str, list[all_to_all.Standstill]] = {mode: [] for mode in MODES}
    skipped: list[Skipped] = []
    with ExitStack() as stack:
        stack.enter_context(cores_awake())
        places: dict[str, Place] = {"processes": processes}
        if not options.quick:
            try:
                places["Spark"] = stack.enter_context(spark())
            except ConfigError as error:
                skipped.append(Skipped("Spark", str(error)))
        for number in range(rounds):
            for place_name, place in places.items():
                for mode in MODES:
                    options.say(f"isolation: round {number + 1}, {place_name}, {mode}")
                    outcome = outcomes.setdefault((place_name, mode), Rounds())
                    outcome.add(f"{mode}, {place_name}", one_round(place, mode, times), times)
            options.say(f"isolation: round {number + 1}, {BURNING}")
            burning.add(BURNING, one_round(processes, "credit", times, burns=True), times)
            for mode, standings in shared.items():
                options.say(f"isolation: round {number + 1}, {mode}, all to all")
                standings.append(all_to_all.one_round(processes, mode, times.before, times.stalled))
    return report(outcomes, burning, shared, times, tuple(skipped))


def one_round(place: Place, mode: str, times: Times, *, burns: bool = False) -> Seen:
    """Measure the full rate, then stall B.4 while both flows are paced. Return the record of B.3.

    Raises HeadgateError if B.4 did not stall, or if rows did not cross the connection.
    """
    full = observe(place, mode, None, times.capacity, {})
    rate = SHARE * full[B3].rate(times.capacity / 3, times.capacity)
    stall = Stall(times.stall_at, times.settling + times.stalled, burns)
    seen = observe(place, mode, rate, times.end, {B4: stall})
    if seen[B4].stalled is None or seen[B4].rate(times.counts_from, times.end) > 0:
        raise HeadgateError(
            f"isolation: B.4 did not stall {times.stall_at:g} s after the start, so the round does not count"
        )
    return seen[B3]


def observe(
    place: Place, mode: str, rate: float | None, seconds: float, stalls: Mapping[int, Stall]
) -> dict[int, Seen]:
    """Run each flow for `seconds` at `rate` rows/s (None means full speed). Return the records of B.3 and B.4."""
    environment = place(MODES[mode])
    probe = Probe(stalls)
    flows = Flows({A1: Flow((B3,), rate), A2: Flow((B4,), rate)}, seconds)
    environment.from_source(flows).partition_by(by_target).sink_to(probe)
    result = environment.execute("isolation")
    if result.metrics["remote_bytes"] < ROW_BYTES * result.rows_in:
        raise HeadgateError(
            f"isolation: {result.metrics['remote_bytes']:,} bytes crossed the connection, fewer than those of "
            f"{result.rows_in:,} rows, so the round does not count"
        )
    return probe.seen


def report(
    outcomes: Mapping[tuple[str, str], Rounds],
    burning: Rounds | None,
    shared: Mapping[str, Sequence[all_to_all.Standstill]],
    times: Times,
    skipped: tuple[Skipped, ...],
) -> Experiment:
    """Return the figures and the verdict of all places and modes. The stall in a Python loop has no verdict.

    A simulation has no such stall: `burning` is None.
    """
    figures = [
        figure for (place_name, mode), rounds in outcomes.items() for figure in rounds.figures(f"{mode}, {place_name}")
    ]
    if burning is not None:
        figures += burning.figures(BURNING)
    figures += all_to_all.figures(shared)
    all_rounds = (*outcomes.values(), burning)
    curves = tuple(each.arrived for each in all_rounds if each is not None and each.arrived is not None)
    marks = ((times.stall_at, "B.4 stalls"), (times.counts_from, "counts"))
    plot = Plot(title="B.3, last round", x="time, s", y="rows/s", series=curves, marks=marks)
    return Experiment(
        case="isolation",
        target=f"while B.4 stalls, B.3 keeps {KEEPS:.0%} of its rate and its p99 stays within {GROWS:g} x; over plain "
        f"TCP B.3's rate falls under {FALLS:.0%}; in an all-to-all exchange every writer stops in the end",
        met=all(_met(mode, rounds) for (_, mode), rounds in outcomes.items()) and all_to_all.is_met(shared),
        figures=tuple(figures),
        settings={"paced at": SHARE, "bytes per row": ROW_BYTES, "seconds stalled": times.settling + times.stalled},
        skipped=skipped,
        plots=(plot, all_to_all.plot(shared, times.before)),
    )


def _met(mode: str, rounds: Rounds) -> bool:
    if mode == "tcp":
        return median(rounds.kept) < FALLS
    return median(rounds.kept) >= KEEPS and median(rounds.grown) <= GROWS
