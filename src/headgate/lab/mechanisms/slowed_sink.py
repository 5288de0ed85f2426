"""`slow-sink`: a sink takes a tenth of its load for a time. Does memory stay bounded? What is lost, what is doubled?

One source sends to one sink over one connection, in batches of 100 rows. Sizes and times of a mechanism are its
documented defaults, divided by one factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.contest import contest
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, Contestant
from headgate.lab.mechanisms.mechanism_report import mechanism_report, whole
from headgate.lab.mechanisms.observed import MechanismRun, observe, outcome
from headgate.lab.mechanisms.reactions import reactions
from headgate.lab.mechanisms.sibling import FULL, QUICK, RATE, StallTimes
from headgate.lab.mechanisms.verdicts import Better, Measured, Observation
from headgate.lab.places import A2, B4, Place, processes
from headgate.lab.probe import Probe, Slow

#: What the sink takes, as shares of the load: before and after, and while it is slow.
CAPACITY: Final = 2.0
SLOW: Final = 0.1
BETTER: Final[Better] = {
    "until the source knows": "less",
    "rows in flight at most": "less",
    "rows lost": "less",
    "rows doubled": "less",
    "until the source reads freely again": "less",
}


def run(options: Options, place_of: Callable[[int], Place] = lambda _number: processes) -> Experiment:
    """Run each mechanism, round by round."""
    times = QUICK if options.quick else FULL
    return contest("slow-sink", options, times, place_of=place_of, one_round=one_round, report=report)


def one_round(place: Place, contestant: Contestant, times: StallTimes) -> MechanismRun:
    slow = Slow(CAPACITY * RATE, times.before, times.stall, SLOW * RATE)
    flows = Flows({A2: Flow((B4,), RATE, batch_rows=BATCH)}, times.end)
    return observe(place, contestant.options(times.factor), flows, Probe(slows={B4: slow}))


def report(runs: dict[str, list[MechanismRun]], times: StallTimes) -> Experiment:
    """Return what the mechanisms did, and whether that was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    for name, rounds in runs.items():
        expected = CONTESTANTS[name].expected
        stopped = [each.stopped_at(times.before) for each in rounds]
        findings += [
            Observation(name, "the source stops", all(at is not None for at in stopped), expected.stops),
            *whole(name, rounds, doubles=expected.doubles),
            *reactions(name, rounds, times.overload(SLOW, streams=1)),
        ]
        measured[name] = {
            "until the source knows": ("s", [None if at is None else at - times.before for at in stopped]),
            "rows in flight at most": ("rows", [float(each.most_in_flight(0, times.end)) for each in rounds]),
            "until the source reads freely again": ("s", [_released(each, times.end) for each in rounds]),
            **outcome(rounds),
        }
    return mechanism_report(
        "slow-sink",
        f"each mechanism does what was expected of it while a sink takes {SLOW:.0%} of its load",
        findings=findings,
        measured=measured,
        better=BETTER,
        settings={
            "rows/s": RATE,
            "rows of a batch": BATCH,
            "sizes and times divided by": times.factor,
            "seconds slow": times.stall,
        },
        plots=(in_flight(runs, "rows in flight, last round", (times.before, "the sink is slow")),),
    )


def _released(run: MechanismRun, end: float) -> float | None:
    at = run.released_at(end)
    return None if at is None else at - end


def in_flight(runs: dict[str, list[MechanismRun]], title: str, *marks: tuple[float, str]) -> Plot:
    """Return the plot of the rows in flight over time, in the last round of each mechanism."""
    return Plot(
        title=title,
        x="time, s",
        y="rows",
        series=tuple(_curve(name, rounds) for name, rounds in runs.items()),
        marks=marks,
    )


def _curve(name: str, rounds: Sequence[MechanismRun]) -> Series:
    times, rows = zip(*rounds[-1].in_flight(), strict=True)
    return Series(name, times, rows)
