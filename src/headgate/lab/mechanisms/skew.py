"""`skew`: one key is hot. What do the rows of the other keys get?

One source sends the rows of the hot key to B.4, and the rows of all other keys to B.3. Both sinks together take just
what the source offers, but the hot key alone has 150 % of what B.4 takes. Sizes and times of a mechanism are its
documented defaults, divided by one factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.contest import contest
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, Contestant, Expected
from headgate.lab.mechanisms.mechanism_report import mechanism_report, whole
from headgate.lab.mechanisms.observed import MechanismRun, observe, outcome
from headgate.lab.mechanisms.sibling import KEEPS
from headgate.lab.mechanisms.verdicts import Better, Measured, Observation
from headgate.lab.places import A2, B3, B4, Place, processes
from headgate.lab.probe import Probe, Slow

#: Rows per second that each sink takes, that the source offers, and the sinks of four rows in turn.
CAPACITY: Final = 20_000.0
OFFERED: Final = 2 * CAPACITY
TO: Final = (B4, B4, B4, B3)
_HOT: Final = TO.count(B4) / len(TO)
#: The messages per second by which the queue of the hot key grows. A message has its rows of one batch.
_EXCESS: Final = (_HOT * OFFERED - CAPACITY) / (_HOT * BATCH)
BETTER: Final[Better] = {
    "share of their rate that the other keys get": "more",
    "share of what its sink takes that the hot key gets": "more",
    "p99 of the other keys": "less",
    "rows in flight at most": "less",
    "rows lost": "less",
}
#: What differs here from an independent stream. The rate is below the one that the source offers for both keys.
SPARES: Final[Mapping[str, bool]] = {"fixed-rate": False}


@dataclass(frozen=True, slots=True)
class SkewTimes:
    """By which factor all sizes and times are divided, and the seconds of a round after the division."""

    factor: float
    seconds: float
    rounds: int

    @property
    def counts_from(self) -> float:
        """The time from which the rates count: the start of the last quarter."""
        return 0.75 * self.seconds

    @property
    def has_settled(self) -> float:
        """The time from which all rows should come as fast as the source offers them."""
        return 0.1 * self.seconds

    def spares(self, expected: Expected) -> bool | None:
        """Return whether the other keys are expected to keep their rate: if nothing stops their source.

        None: nothing is expected, or the longest queue of the mechanism is not full in time.
        """
        if not expected.stops:
            return None if expected.stops is None else expected.keeps_sibling
        if expected.reaction is None:
            return None
        divided = 1 / self.factor if expected.reaction.is_divided else 1.0
        full = expected.reaction.fills[1] / _EXCESS + expected.reaction.stops_after
        return False if full * divided < self.counts_from else None


FULL: Final = SkewTimes(factor=16, seconds=24.0, rounds=1)
QUICK: Final = SkewTimes(factor=80, seconds=6.0, rounds=1)


def run(options: Options, place_of: Callable[[int], Place] = lambda _number: processes) -> Experiment:
    """Run each mechanism, round by round."""
    times = QUICK if options.quick else FULL
    return contest("skew", options, times, place_of=place_of, one_round=one_round, report=report)


def one_round(place: Place, contestant: Contestant, times: SkewTimes) -> MechanismRun:
    flows = Flows({A2: Flow(TO, OFFERED, batch_rows=BATCH, ends_on_time=True)}, times.seconds)
    probe = Probe(slows={B3: Slow(CAPACITY), B4: Slow(CAPACITY)})
    return observe(place, contestant.options(times.factor), flows, probe)


def share(run: MechanismRun, sink: int, offered: float, times: SkewTimes) -> float:
    """Return the rows/s that a sink got in the last quarter, as a share of `offered`. Without a record, it is 0."""
    return run.seen[sink].rate(times.counts_from, times.seconds - 0.1) / offered if sink in run.seen else 0.0


def others_share(run: MechanismRun, times: SkewTimes) -> float:
    """Return the share of their rate that the other keys get: in the last quarter, or in the whole run if it is less.

    A source that stood is behind, and then reads faster than it offers. The last quarter alone may show just this.
    """
    offered = (1 - _HOT) * OFFERED
    if B3 not in run.seen:
        return 0.0
    whole = run.seen[B3].rate(times.has_settled, times.seconds - 0.1) / offered
    return min(whole, share(run, B3, offered, times))


def report(runs: Mapping[str, list[MechanismRun]], times: SkewTimes) -> Experiment:
    """Return what the mechanisms did, and whether that was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    for name, rounds in runs.items():
        expected = CONTESTANTS[name].expected
        spares = SPARES.get(name, times.spares(expected))
        others = [others_share(each, times) for each in rounds]
        findings += [
            Observation(name, "the other keys keep their rate", median(others) >= KEEPS, spares),
            *whole(name, rounds, doubles=False),
        ]
        measured[name] = {
            "share of their rate that the other keys get": ("", others),
            "share of what its sink takes that the hot key gets": (
                "",
                [share(each, B4, CAPACITY, times) for each in rounds],
            ),
            "p99 of the other keys": (
                "ms",
                [
                    each.seen[B3].latency(99, times.counts_from, times.seconds) if B3 in each.seen else None
                    for each in rounds
                ],
            ),
            "until the source stops": ("s", [each.stopped_at(0.0) for each in rounds]),
            "rows in flight at most": ("rows", [float(each.most_in_flight(0, times.seconds)) for each in rounds]),
            **outcome(rounds),
        }
    return mechanism_report(
        "skew",
        "each mechanism does to the other keys what was expected while one key is hot",
        findings=findings,
        measured=measured,
        better=BETTER,
        settings={
            "rows/s offered": OFFERED,
            "share of the hot key": _HOT,
            "rows/s that each sink takes": CAPACITY,
            "rows of a batch": BATCH,
            "sizes and times divided by": times.factor,
        },
        plots=(
            Plot(
                title="the other keys, last round",
                x="time, s",
                y="rows/s",
                series=tuple(_curves(runs, times)),
                marks=((times.counts_from, "counts"),),
            ),
        ),
    )


def _curves(runs: Mapping[str, list[MechanismRun]], times: SkewTimes) -> list[Series]:
    return [rounds[-1].seen[B3].curve(name, times.seconds) for name, rounds in runs.items() if B3 in rounds[-1].seen]
