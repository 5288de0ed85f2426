"""`burst`: the load rises from 50 % to 150 % of what the sink takes, and falls to 50 % again.

One source sends to one sink over one connection, in batches of 100 rows. The load is open loop: latency counts from the
time at which a row was due, also if its source was held back. Sizes and times of a mechanism are its documented
defaults, divided by one factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.flows import ROW_BYTES, Flow, Flows, LoadPhase
from headgate.lab.mechanisms.contest import contest
from headgate.lab.mechanisms.contestants import BATCH, Contestant
from headgate.lab.mechanisms.mechanism_report import mechanism_report, whole
from headgate.lab.mechanisms.observed import MechanismRun, observe, outcome
from headgate.lab.mechanisms.overload import Overload
from headgate.lab.mechanisms.reactions import reactions
from headgate.lab.mechanisms.slowed_sink import in_flight
from headgate.lab.mechanisms.verdicts import Better, Measured, Observation
from headgate.lab.places import A2, B4, Place, processes
from headgate.lab.probe import Probe, Slow

#: Rows per second that the sink takes, and the loads as shares of it.
CAPACITY: Final = 20_000.0
CALM: Final = 0.5
BURST: Final = 1.5
BETTER: Final[Better] = {
    "rows/s that the sink gets in the burst": "more",
    "p50 of the rows due in the burst": "less",
    "p99 of the rows due in the burst": "less",
    "p100 of the rows due in the burst": "less",
    "rows in flight at most": "less",
    "stops of the source": "less",
    "from the burst's end until it waits no more": "less",
    "rows lost": "less",
}


@dataclass(frozen=True, slots=True)
class BurstTimes:
    """By which factor all sizes and times are divided, and the seconds of each phase."""

    factor: float
    before: float
    burst: float
    after: float
    rounds: int

    @property
    def over(self) -> float:
        return self.before + self.burst

    @property
    def end(self) -> float:
        return self.over + self.after

    @property
    def overload(self) -> Overload:
        capacity = CAPACITY / BATCH
        return Overload(
            begin=self.before, end=self.over, come=BURST * capacity, taken=capacity, spare=(1 - CALM) * capacity,
            factor=self.factor,
        )  # fmt: skip


FULL: Final = BurstTimes(factor=16, before=2.0, burst=6.0, after=8.0, rounds=1)
QUICK: Final = BurstTimes(factor=80, before=1.0, burst=1.5, after=2.0, rounds=1)


def run(options: Options, place_of: Callable[[int], Place] = lambda _number: processes) -> Experiment:
    """Run each mechanism, round by round."""
    times = QUICK if options.quick else FULL
    return contest("burst", options, times, place_of=place_of, one_round=one_round, report=report)


def one_round(place: Place, contestant: Contestant, times: BurstTimes) -> MechanismRun:
    phases = LoadPhase(times.before, CALM * CAPACITY), LoadPhase(times.burst, BURST * CAPACITY)
    flow = Flow((B4,), CALM * CAPACITY, phases, BATCH)
    probe = Probe(slows={B4: Slow(CAPACITY)})
    return observe(place, contestant.options(times.factor), Flows({A2: flow}, times.end), probe)


def report(runs: dict[str, list[MechanismRun]], times: BurstTimes) -> Experiment:
    """Return what the mechanisms did. Lost rows, doubled rows and full memory are compared with what was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    for name, rounds in runs.items():
        findings += [
            *whole(name, rounds, doubles=False),
            *reactions(name, rounds, times.overload),
        ]
        stopped = [each.stopped_at(times.before) for each in rounds]
        measured[name] = {
            **{
                f"p{percent:g} of the rows due in the burst": (
                    "ms",
                    [_latency(each, percent, times) for each in rounds],
                )
                for percent in (50, 99, 100)
            },
            "rows/s that the sink gets in the burst": ("rows/s", [_carried(each, times) for each in rounds]),
            "rows in flight at most": ("rows", [float(each.most_in_flight(0, times.end)) for each in rounds]),
            "bytes in flight at most": (
                "B",
                [float(ROW_BYTES * each.most_in_flight(0, times.end)) for each in rounds],
            ),
            "stops of the source": ("", [float(each.stops(0.0, times.end)) for each in rounds]),
            "until the source waits": ("s", [None if at is None else at - times.before for at in stopped]),
            "from the burst's end until it waits no more": ("s", [_released(each, times) for each in rounds]),
            **outcome(rounds),
        }
    return mechanism_report(
        "burst",
        f"each mechanism loses and doubles what was expected when the load is {BURST:.0%} of what the sink takes",
        findings=findings,
        measured=measured,
        better=BETTER,
        settings={
            "rows/s that the sink takes": CAPACITY,
            "rows of a batch": BATCH,
            "sizes and times divided by": times.factor,
            "seconds of the burst": times.burst,
        },
        plots=(
            in_flight(
                runs, "rows in flight, last round", (times.before, "the burst begins"), (times.over, "the burst ends")
            ),
        ),
    )


def _latency(run: MechanismRun, percent: float, times: BurstTimes) -> float | None:
    return run.seen[B4].latency(percent, times.before, times.over) if B4 in run.seen else None


def _carried(run: MechanismRun, times: BurstTimes) -> float | None:
    return run.seen[B4].rate(times.before, times.over) if B4 in run.seen else None


def _released(run: MechanismRun, times: BurstTimes) -> float | None:
    at = run.released_at(times.over)
    return None if at is None else at - times.over
