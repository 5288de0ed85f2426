"""Runs an experiment with each mechanism in turn, round by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from headgate.bench.case_options import Options
from headgate.lab.mechanisms.contestants import CONTESTANTS, SIMULATED, Contestant
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
) -> dict[str, list[MechanismRun]]:
    """Return the runs of each mechanism of `options`, or of all. `place_of` takes the number of a round, from 0."""
    names = options.mechanisms or tuple(CONTESTANTS)
    runs: dict[str, list[MechanismRun]] = {name: [] for name in names}
    for number in range(times.rounds):
        for name in names:
            options.say(f"{case}: round {number + 1}, {name}, all sizes and times divided by {times.factor:g}")
            runs[name].append(one_round(place_of(number), CONTESTANTS[name], times))
    return runs
