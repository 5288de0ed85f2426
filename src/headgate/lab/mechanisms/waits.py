"""`waits`: the longest waits of three originals, with nothing divided. Do they last as long as documented?

The other experiments divide sizes and times by a factor. Here three mechanisms have those of the originals: messages of
`MaxPending` fail after 30 s, sources of Storm 1.2 ask every 30 s whether they may go on, and a queue of Storm 2 has
32,768 messages. One source sends to one sink over one connection, in batches of 100 rows. The sink stalls, and then
takes several times what comes. Each mechanism runs once, with a load that shows its longest wait.

In virtual time, `sweep` runs two of them with several factors. Their times, multiplied by the factor, must be the same:
only then may the other experiments divide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment, Plot, Series
from headgate.lab.flows import Flow, Flows
from headgate.lab.mechanisms.contestants import BATCH, CONTESTANTS, divided
from headgate.lab.mechanisms.made_runs import Plan, judged
from headgate.lab.mechanisms.mechanism_report import mechanism_report, whole
from headgate.lab.mechanisms.observed import LOOK, MechanismRun, observe, outcome
from headgate.lab.mechanisms.overload import Overload
from headgate.lab.mechanisms.reactions import SLACK, reactions
from headgate.lab.mechanisms.slowed_sink import in_flight
from headgate.lab.mechanisms.verdicts import Measured, Observation, OwnObservation
from headgate.lab.places import A2, B4, Place, processes
from headgate.lab.probe import Probe, Slow, Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class LongStall:
    """The load of one mechanism: messages per second, and seconds before the division by a factor.

    The sink stalls for `stall` seconds. Then it takes `taken` messages/s of the `come` messages/s that come, and
    `recovers` seconds later the source reads freely.
    """

    come: float
    taken: float
    stall: float
    recovers: float


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """By which factor all sizes and times are divided, and the seconds before the stall.

    So many seconds also come at the end, in which the source reads freely. On processes they are not divided: a process
    reports every 0.25 s.
    """

    factor: float
    edge: float

    def overload(self, load: LongStall) -> Overload:
        return Overload(
            begin=self.edge, end=self.edge + load.stall / self.factor, come=load.come, taken=0.0,
            spare=load.taken - load.come, factor=self.factor,
        )  # fmt: skip

    def end(self, load: LongStall) -> float:
        """Return the second in which the source ends. It does not catch up after that."""
        return self.overload(load).end + load.recovers / self.factor + self.edge


#: The documented sizes and times that these runs wait for, before the division by a factor: messages and seconds.
PENDING: Final = 1000
POLL: Final = 30.0
QUEUE: Final = 32768
#: The loads were chosen before the first run, so that all three runs together take less than six minutes.
LOADS: Final[dict[str, LongStall]] = {
    #: After 5 s, 1,000 messages wait. Each fails 30 to 60 s after it was sent, so all fail during the stall.
    "max-pending": LongStall(come=200, taken=800, stall=66, recovers=34),
    #: The queue is at its mark after 4.6 s. The time in the node is renewed 15 s later, and the stall ends before 15 s
    #: more. So the poll after 30 s finds a time that still counts, and only the next one finds an old one.
    "storm-zk-1.2": LongStall(come=200, taken=800, stall=28, recovers=38),
    #: The queue is full after 66 s, and empty 22 s after the stall. Then the source reads what is due since it stopped.
    "storm-status": LongStall(come=500, taken=1500, stall=80, recovers=42),
}
FULL: Final = WaitTimes(factor=1, edge=2.0)
QUICK: Final = WaitTimes(factor=20, edge=1.0)
#: The mechanisms that can be simulated, and the factors of their sweep.
SWEPT: Final = ("max-pending", "storm-status")
FACTORS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
QUICK_FACTORS: Final = (8.0, 16.0)
#: How far a time may differ between two factors, as a share, after the multiplication by the factor.
SAME: Final = 0.1

#: What is measured of a run under a load, by name: the unit, and the value. None: it did not happen.
QUANTITIES: Final[Mapping[str, tuple[str, Callable[[MechanismRun, Overload], float | None]]]] = {
    "until the source stops": ("s", lambda run, load: _since(load.begin, run.stopped_at(load.begin))),
    "from the end of the stall until it reads freely": (
        "s",
        lambda run, load: _since(load.end, run.released_at(load.end)),
    ),
    "rows in flight at most": ("rows", lambda run, load: float(run.most_in_flight(0.0, load.end))),
}


def _since(begin: float, at: float | None) -> float | None:
    return None if at is None else at - begin


def run(options: Options) -> Experiment:
    """Run each mechanism once, on processes."""
    times = QUICK if options.quick else FULL
    options.say(f"waits: all sizes and times divided by {times.factor:g}")
    plan: Plan = [(name, partial(one_round, processes, name, times)) for name in LOADS]
    return judged("waits", options, plan, lambda runs: report(runs, times))


def one_round(place: Place, name: str, times: WaitTimes, look: float = LOOK) -> MechanismRun:
    """Run a mechanism under its load, with a look every `look` seconds."""
    load = LOADS[name]
    flow = Flow((B4,), load.come * BATCH, batch_rows=BATCH, ends_on_time=True)
    probe = Probe({B4: Stall(times.edge, load.stall / times.factor)}, slows={B4: Slow(load.taken * BATCH)})
    options = CONTESTANTS[name].options(times.factor)
    return observe(place, options, Flows({A2: flow}, times.end(load)), probe, look=look)


def report(runs: Mapping[str, list[MechanismRun]], times: WaitTimes) -> Experiment:
    """Return how long the mechanisms waited, and whether that was expected."""
    findings: list[Observation] = []
    measured: Measured = {}
    for name, rounds in runs.items():
        overload = times.overload(LOADS[name])
        stopped = [each.stopped_at(overload.begin) for each in rounds]
        free = [each.released_at(overload.end) for each in rounds]
        findings += [
            Observation(name, "the source stops", None not in stopped, True),
            Observation(name, "the source reads freely at the end", None not in free, True),
            *whole(name, rounds, doubles=CONTESTANTS[name].expected.doubles),
            *reactions(name, rounds, overload),
            *_documented(name, rounds, times),
        ]
        measured[name] = {
            **{
                quantity: (unit, [of(each, overload) for each in rounds]) for quantity, (unit, of) in QUANTITIES.items()
            },
            "how long the source stands": ("s", [_stands(each, overload) for each in rounds]),
            **outcome(rounds),
        }
    return mechanism_report(
        "waits",
        "each mechanism waits as long as its documents say",
        findings=findings,
        measured=measured,
        better={},
        settings={**_loads(), "sizes and times divided by": times.factor},
        plots=(in_flight(dict(runs), "rows in flight", (times.edge, "the sink stalls")),),
    )


def _stands(run: MechanismRun, overload: Overload) -> float | None:
    """Return how long the source stood, from its first stop to the end of its last one."""
    stopped, free = run.stopped_at(overload.begin), run.released_at(overload.begin)
    return None if stopped is None or free is None else free - stopped


def _documented(name: str, rounds: Sequence[MechanismRun], times: WaitTimes) -> Iterator[Observation]:
    """Yield what the documents say of this mechanism alone, and whether all rounds showed it."""
    overload = times.overload(LOADS[name])
    if name == "max-pending":
        rows = divided(PENDING, times.factor) * BATCH
        what = f"each message under way is sent again: at least {rows:,} rows are doubled"
        yield OwnObservation(name, what, all(each.doubled >= rows for each in rounds), True)
    elif name == "storm-zk-1.2":
        polls = 2 * POLL / times.factor
        stands = [_stands(each, overload) for each in rounds]
        yield OwnObservation(
            name,
            f"the source stands until its second poll, for {polls - 2 * SLACK:g} to {polls + 2 * SLACK:g} s",
            all(each is not None and abs(each - polls) <= 2 * SLACK for each in stands),
            True,
        )
    elif name == "storm-status":
        drained = divided(QUEUE, times.factor) / LOADS[name].taken - SLACK
        free = [each.released_at(overload.end) for each in rounds]
        yield OwnObservation(
            name,
            f"the source stands until the queue is empty, at least {drained:.3g} s after the stall",
            all(at is None or at - overload.end >= drained for at in free),
            True,
        )


def _loads() -> dict[str, object]:
    """Return the settings that all runs have."""
    return {
        "rows of a batch": BATCH,
        "messages/s": _of_each(lambda load: load.come),
        "messages/s that the sink takes after its stall": _of_each(lambda load: load.taken),
        "seconds stalled, before the division": _of_each(lambda load: load.stall),
    }


def _of_each(number: Callable[[LongStall], float]) -> str:
    return ", ".join(f"{name} {number(load):g}" for name, load in LOADS.items())


# ---- the factors, in virtual time

#: The runs of a sweep, by mechanism and factor.
SweptRuns: TypeAlias = dict[str, dict[float, MechanismRun]]


def sweep(options: Options, place_of: Callable[[int], Place]) -> Experiment:
    """Run the mechanisms with each factor. `place_of` takes the number of a round, which is 0."""
    factors = QUICK_FACTORS if options.quick else FACTORS
    options.say(f"waits: all sizes and times divided by {', '.join(f'{factor:g}' for factor in factors)} in turn")
    keys = {f"{name}, divided by {factor:g}": (name, factor) for name in SWEPT for factor in factors}
    plan: Plan = [
        (label, partial(one_round, place_of(0), name, _scaled(factor), LOOK / factor))
        for label, (name, factor) in keys.items()
    ]
    return judged("waits", options, plan, lambda runs: sweep_report(_by_factor(runs, keys)))


def _scaled(factor: float) -> WaitTimes:
    """Return times of which all are divided by the factor."""
    return WaitTimes(factor, FULL.edge / factor)


def _by_factor(made: Mapping[str, list[MechanismRun]], keys: Mapping[str, tuple[str, float]]) -> SweptRuns:
    runs: SweptRuns = {}
    for label, (run,) in made.items():
        name, factor = keys[label]
        runs.setdefault(name, {})[factor] = run
    return runs


def sweep_report(runs: SweptRuns) -> Experiment:
    """Return the times and sizes, multiplied by the factor, and whether they are the same with all factors."""
    findings: list[Observation] = []
    measured: Measured = {}
    curves: list[Series] = []
    factors = {factor for by_factor in runs.values() for factor in by_factor}
    for name, by_factor in runs.items():
        measured[name] = {}
        for quantity, (unit, of) in QUANTITIES.items():
            values = {factor: of(run, _scaled(factor).overload(LOADS[name])) for factor, run in by_factor.items()}
            known = {factor: factor * value for factor, value in values.items() if value is not None}
            measured[name] |= {f"{quantity}, times {factor:g}": (unit, [value]) for factor, value in known.items()}
            is_same = len(known) == len(values) and max(known.values()) <= (1 + SAME) * min(known.values())
            findings.append(Observation(name, f"{quantity}, times the factor, is the same", is_same, True))
            if unit == "s":
                curves.append(Series(f"{name}: {quantity}", tuple(known), tuple(known.values())))
    return mechanism_report(
        "waits",
        f"times and sizes, multiplied by the factor, are the same within {SAME:.0%} with each factor",
        findings=findings,
        measured=measured,
        better={},
        settings={**_loads(), "factors": ", ".join(f"{factor:g}" for factor in sorted(factors))},
        plots=(
            Plot(
                title="times that are multiplied by the factor", x="factor", y="s", series=tuple(curves), log_x=True,
            ),
        ),
    )  # fmt: skip
