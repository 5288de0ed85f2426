"""What a diagnosis says in one line, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.observe.finding import Finding, Severity

_WORDS: Final = {Severity.LIMIT: "at its limit", Severity.BEHIND: "falls behind", Severity.STUCK: "stuck"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`line` has the severity, the place, the cause and the remedy of the worst finding.

    `key` changes with the severity, place or cause, and not with the numbers in the line.
    """

    line: str
    key: tuple[str, ...]


#: While a job's first seconds are measured.
MEASURING: Final = Verdict("measuring its first seconds", ("measuring",))


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict on a job that was measured, from its findings, the worst first."""
    if not findings:
        return Verdict("nothing holds it up", ("ok",))
    first, *others = findings
    more = f" ({len(others)} more)" if others else ""
    key = first.severity.name, first.place, first.cause.name
    return Verdict(f"{_WORDS[first.severity]}: {first.sentence}{more}", key)
