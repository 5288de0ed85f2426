"""The report of an experiment on mechanisms, and what all of these experiments observe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headgate.lab.experiment import Experiment, Plot
from headgate.lab.mechanisms.contestants import CONTESTANTS
from headgate.lab.mechanisms.observed import MechanismRun
from headgate.lab.mechanisms.verdicts import Better, Measured, Observation, figures, misses, sentences


def whole(name: str, rounds: Sequence[MechanismRun], *, doubles: bool) -> Iterator[Observation]:
    """Yield whether a mechanism lost or doubled rows in any round, ran out of memory, or never let the job end.

    `doubles`: it may double.
    """
    yield Observation(name, "rows are lost", any(each.lost for each in rounds), CONTESTANTS[name].expected.loses)
    yield Observation(name, "rows are doubled", any(each.doubled for each in rounds), doubles)
    yield Observation(name, "memory is full", any(each.out_of_memory for each in rounds), False)
    yield Observation(name, "the job does not end", any(each.is_stuck for each in rounds), False)


def mechanism_report(
    case: str,
    target: str,
    *,
    findings: Sequence[Observation],
    measured: Measured,
    better: Better,
    settings: dict[str, Any],
    plots: Sequence[Plot],
) -> Experiment:
    """Return the report. The experiment is met if every finding is what was expected; its target names the misses."""
    missed = misses(findings)
    return Experiment(
        case=case,
        target=target + "".join(f"; missed: {miss}" for miss in missed),
        met=not missed,
        figures=tuple(figures(measured, findings)),
        findings=sentences(findings, measured, better),
        settings=settings,
        plots=tuple(plots),
        missed=tuple(dict.fromkeys(each.mechanism for each in findings if not each.is_met)),
    )
