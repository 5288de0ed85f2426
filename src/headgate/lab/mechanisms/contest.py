"""Runs an experiment with each mechanism, round by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from headgate.bench.case_options import Options
from headgate.lab.experiment import Experiment
from headgate.lab.mechanisms.contestants import CONTESTANTS, SIMULATED, Contestant
from headgate.lab.mechanisms.made_runs import Plan, judged
from headgate.lab.mechanisms.observed import MechanismRun
from headgate.lab.places import Place


class RoundTimes(Protocol):
    """By which factor an experiment divides all sizes and times, and how many rounds it has."""

    @property
    def factor(self) -> float: ...

    @property
    def rounds(self) -> int: ...


_T = TypeVar("_T", bound=RoundTimes)


def simulated_ones(options: Options) -> Options:
    """Return the options with all mechanisms that can be simulated, unless some were chosen."""
    return replace(options, mechanisms=options.mechanisms or SIMULATED)


def contest(
    case: str,
    options: Options,
    times: _T,
    *,
    place_of: Callable[[int], Place],
    one_round: Callable[[Place, Contestant, _T], MechanismRun],
    report: Callable[[dict[str, list[MechanismRun]], _T], Experiment],
) -> Experiment:
    """Return the report of each mechanism of `options`, or of all. `place_of` takes the number of a round, from 0."""
    options.say(f"{case}: all sizes and times divided by {times.factor:g}")
    plan: Plan = [
        (name, partial(one_round, place_of(number), CONTESTANTS[name], times))
        for number in range(times.rounds)
        for name in options.mechanisms or CONTESTANTS
    ]
    return judged(case, options, plan, lambda runs: report(runs, times))
