"""`sibling`: two independent streams share one connection, and one stalls. Does the other keep its rate?

The streams are those of `isolation.py`. Both are paced at a fixed rate, in batches of 100 rows. All sizes and times of
a mechanism are its documented defaults, divided by one factor, and so is the time of the stall. The stall is long
enough to fill the longest queue of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.contest import contest
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, Contestant
from headgate.lab.mechanisms.mechanism_report import mechanism_report, whole
from headgate.lab.mechanisms.observed import MechanismRun, observe, outcome
from headgate.lab.mechanisms.overload import Overload
from headgate.lab.mechanisms.reactions import reactions
from headgate.lab.mechanisms.verdicts import Better, Measured, Observation
from headgate.lab.places import A1, A2, B3, B4, Place, processes
from headgate.lab.probe import Probe, Stall

#: The sibling keeps its rate if it has at least this share of it in the stall.
KEEPS: Final = 0.95
#: Rows per second of each stream.
RATE: Final = 20_000.0
BETTER: Final[Better] = {
    "share of its rate that the sibling keeps": "more",
    "until the source stops": "less",
    "rows in flight at most": "less",
    "rows lost": "less",
    "rows doubled": "less",
}


@dataclass(frozen=True, slots=True)
class StallTimes:
    """By which factor all sizes and times are divided, and the seconds of a round after the division."""

    factor: float
    before: float
    stall: float
    rounds: int

    @property
    def counts_from(self) -> float:
        """The time in seconds from which the sibling's rate counts: the start of the last third of the stall, when all
        queues are full."""
        return self.before + 2 * self.stall / 3

    @property
    def end(self) -> float:
        return self.before + self.stall

    def overload(self, taken: float = 0.0, streams: int = 2) -> Overload:
        """Return the load on the slow sink, which takes the share `taken` of it. Afterwards no more rows come."""
        come = RATE / BATCH
        return Overload(
            begin=self.before, end=self.end, come=come, taken=taken * come, spare=0.0, factor=self.factor,
            streams=streams,
        )  # fmt: skip


#: The longest queue, of Storm 2, has 32,768 messages: 164 s at this rate. Experiments that wait for it have one round,
#: so that all comparisons together take less than an hour.
FULL: Final = StallTimes(factor=16, before=2.0, stall=18.0, rounds=1)
QUICK: Final = StallTimes(factor=80, before=1.0, stall=3.6, rounds=1)


def run(options: Options, place_of: Callable[[int], Place] = lambda _number: processes) -> Experiment:
    """Run each mechanism, round by round."""
    times = QUICK if options.quick else FULL
    return contest("sibling", options, times, place_of=place_of, one_round=one_round, report=report)


def one_round(place: Place, contestant: Contestant, times: StallTimes) -> MechanismRun:
    flows = Flows({A1: _flow(B3), A2: _flow(B4)}, times.end)
    return observe(place, contestant.options(times.factor), flows, Probe({B4: Stall(times.before, times.stall)}))


def _flow(to: int) -> Flow:
    return Flow((to,), RATE, batch_rows=BATCH)


def kept(run: MechanismRun, times: StallTimes) -> float:
    """Return the share of its rate that the sibling keeps. In a job that ran out of memory, it is 0."""
    if B3 not in run.seen:
        return 0.0
    seen = run.seen[B3]
    return seen.rate(times.counts_from, times.end - 0.1) / RATE


def report(runs: dict[str, list[MechanismRun]], times: StallTimes) -> Experiment:
    """Return what the mechanisms did, and whether that was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    curves: list[Series] = []
    for name, rounds in runs.items():
        expected = CONTESTANTS[name].expected
        shares = [kept(each, times) for each in rounds]
        stopped = [each.stopped_at(times.before) for each in rounds]
        findings += [
            Observation(name, "the sibling keeps its rate", median(shares) >= KEEPS, expected.keeps_sibling),
            Observation(
                name, "the source of the stalled stream stops", all(at is not None for at in stopped), expected.stops
            ),
            *whole(name, rounds, doubles=expected.doubles),
            *reactions(name, rounds, times.overload()),
        ]
        measured[name] = {
            "share of its rate that the sibling keeps": ("", shares),
            "until the source stops": ("s", [None if at is None else at - times.before for at in stopped]),
            "rows in flight at most": ("rows", [float(each.most_in_flight(0, times.end)) for each in rounds]),
            **outcome(rounds),
        }
        if B3 in rounds[-1].seen:
            curves.append(rounds[-1].seen[B3].curve(name, times.end))
    return mechanism_report(
        "sibling",
        "each mechanism does what was expected of it while an independent stream of the same connection stalls",
        findings=findings,
        measured=measured,
        better=BETTER,
        settings={
            "rows/s of each stream": RATE,
            "rows of a batch": BATCH,
            "sizes and times divided by": times.factor,
            "seconds stalled": times.stall,
        },
        plots=(
            Plot(
                title="the sibling, last round",
                x="time, s",
                y="rows/s",
                series=tuple(curves),
                marks=((times.before, "B.4 stalls"),),
            ),
        ),
    )
