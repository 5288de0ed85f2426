"""Compares what mechanisms did with what was expected of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headgate.bench.report import Figure


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
        if self.explained and self.did != self.expected:
            expected += f", but {self.explained}"
        return Figure(f"{self.mechanism}: {self.what}", expected, (float(self.did),))


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
