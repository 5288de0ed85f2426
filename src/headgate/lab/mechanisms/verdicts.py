"""Compares what mechanisms did with what was expected of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal, TypeAlias

from headgate.bench.command import number
from headgate.bench.report import Figure

#: The mechanism that all others are compared with.
CREDIT: Final = "credit"
#: A mechanism is better than credit if its figure is by more than this share of credit's.
_DIFFERS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Observation:
    """Whether a mechanism did one thing, and whether it was expected to. None: it was only measured.

    If the documents are silent on something that makes it differ, `explained` says what.
    """

    mechanism: str
    what: str
    did: bool
    expected: bool | None
    explained: str = ""

    @property
    def is_met(self) -> bool:
        return self.expected is None or self.did == self.expected or bool(self.explained)

    @property
    def figure(self) -> Figure:
        """The finding as a figure: 1 for yes. Its unit says what was expected, and why not if that is known."""
        expected = "measured" if self.expected is None else f"expected {int(self.expected)}"
        if self.explained and self.expected is not None and self.did != self.expected:
            expected += f", but {self.explained}"
        return Figure(f"{self.mechanism}: {self.what}", expected, (float(self.did),))


class OwnObservation(Observation):
    """An observation whose text names times and sizes of this mechanism alone."""


def misses(findings: Sequence[Observation]) -> list[str]:
    """Return what was not as expected, as text."""
    return [
        f"{each.mechanism}: {each.what}: {'yes' if each.did else 'no'}, against the expectation"
        for each in findings
        if not each.is_met
    ]


#: What was measured, by mechanism and name: the unit, and the value of each round; None: the round has none.
Measured: TypeAlias = dict[str, dict[str, tuple[str, Sequence[float | None]]]]


def figures(measured: Measured, findings: Sequence[Observation]) -> Iterator[Figure]:
    """Yield the figures by mechanism: what was measured, by name with its unit, and then the findings.

    A round without a value is left out.
    """
    for mechanism, values in measured.items():
        for name, (unit, rounds) in values.items():
            known = tuple(value for value in rounds if value is not None)
            if known:
                yield Figure(f"{mechanism}: {name}", unit, known)
        for each in findings:
            if each.mechanism == mechanism:
                yield each.figure


#: Whether less of a figure is better, or more, by the figure's name.
Better: TypeAlias = Mapping[str, Literal["less", "more"]]


def sentences(findings: Sequence[Observation], measured: Measured, better: Better) -> tuple[str, ...]:
    """Return what an experiment found, as sentences. They say in which of the figures `better` credit loses."""
    common = dict.fromkeys(each.what for each in findings if not isinstance(each, OwnObservation))
    said = [_who([each for each in findings if each.what == what]) for what in common]
    if own := [each for each in findings if isinstance(each, OwnObservation)]:
        judged = [each for each in own if each.expected is not None]
        seen = sum(each.did == each.expected for each in judged)
        unjudged = f"; {len(own) - len(judged)} measured, not judged" if len(judged) < len(own) else ""
        said.append(f"{seen} of {len(judged)} expected reactions were seen{unjudged}.")
    return (*said, *losses(measured, better))


def _who(findings: Sequence[Observation]) -> str:
    """Return who did one thing and who did not. All findings are about this thing."""
    did, did_not = ([each.mechanism for each in findings if each.did is wanted] for wanted in (True, False))
    what = findings[0].what
    what = what[0].upper() + what[1:]
    if not did:
        return f"{what} with none."
    return f"{what} with {', '.join(did)}" + (f"; not with {', '.join(did_not)}." if did_not else ".")


def losses(measured: Measured, better: Better) -> Iterator[str]:
    """Yield where credit loses: a sentence for each figure in which others are better. Nothing without credit.

    A figure that others reach by losing rows, or with more memory, counts too: its sentence does not say at what price.
    """
    if CREDIT not in measured or len(measured) < 2:
        return
    lost = False
    for figure, direction in better.items():
        medians = dict(_medians(measured, figure))
        ours = medians.pop(CREDIT, None)
        if ours is None:
            continue
        sign = 1 if direction == "less" else -1
        winners = {name: value for name, value in medians.items() if sign * (ours - value) > _DIFFERS * abs(ours)}
        if winners:
            lost = True
            unit = measured[CREDIT][figure][0]
            others = ", ".join(f"{name} {number(winners[name])}" for name in sorted(winners, key=_by(winners, sign)))
            yield f"Credit loses in {figure!r}: {number(ours)}{unit and ' ' + unit}; better: {others}."
    if not lost:
        yield f"Credit loses in none of these figures: {', '.join(better)}."


def _by(values: Mapping[str, float], sign: int) -> Callable[[str], float]:
    return lambda name: sign * values[name]


def _medians(measured: Measured, figure: str) -> Iterator[tuple[str, float]]:
    for mechanism, values in measured.items():
        known = [value for value in values.get(figure, ("", ()))[1] if value is not None and not math.isnan(value)]
        if known:
            yield mechanism, median(known)
