"""Summarize a diagnosis in one line for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.observe.finding import Finding, Severity

_WORDS: Final = {Severity.LIMIT: "at its limit", Severity.BEHIND: "falls behind", Severity.STUCK: "stuck"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The summary of a diagnosis. `line` has the severity, the place, the cause and the remedy of the worst finding.

    `key` identifies the severity, the place and the cause. It does not change when only the numbers in `line` change.
    """

    line: str
    key: tuple[str, ...]


#: The verdict on a job that has not run long enough for a diagnosis.
MEASURING: Final = Verdict("measuring its first seconds", ("measuring",))


def verdict_of(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict for a job's findings, which have the worst finding first."""
    if not findings:
        return Verdict("no bottleneck", ("ok",))
    first, *others = findings
    more = f" ({len(others)} more)" if others else ""
    key = first.severity.name, first.place, first.cause.name
    return Verdict(f"{_WORDS[first.severity]}: {first.sentence_with_keys}{more}", key)
