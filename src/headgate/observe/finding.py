"""One finding of the diagnosis: where, why, how it is known, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headgate.observe.profile import HotLine


class Severity(enum.IntEnum):
    """How bad it is. LIMIT: something is always slowest at full speed. BEHIND: lag grows. STUCK: no row moves."""

    LIMIT = 1
    BEHIND = 2
    STUCK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a place is slow. `name` is a fixed word for programs; `text` says it after "its" or as a sentence part."""

    name: str
    text: str
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do. `gain` is how many times as many rows the job would then carry; None if that is not known.

    `limit` says what the gain ends at: the next operator or the processors.
    """

    text: str
    gain: float | None = None
    limit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A place that holds the job up. `place` names it, `waits` names what waits for it."""

    place: str
    vertex: int | None
    operator: str | None
    subtasks: tuple[int, ...]
    waits: tuple[str, ...]
    cause: Cause
    remedy: Remedy
    is_source: bool = False
    severity: Severity = Severity.LIMIT
    #: If a function is the cause and was profiled: its lines with most samples, the hottest first.
    hottest: tuple[HotLine, ...] = ()
    #: What only the driver's log adds, because it may name data: the page does not have it.
    note: str = ""

    @property
    def sentence(self) -> str:
        """Where, why and what to do, in one line."""
        line = f", {self.hottest[0].share:.0%} of it in {self.hottest[0].frame.short}" if self.hottest else ""
        who = f"{_listed(self.waits)} for {self.place}" if self.waits else f"rows queue for {self.place}"
        if self.is_source and not self.waits:
            who = f"{self.place} is the limit"
        return f"{who}: {self.cause.text}{line}; {self.remedy.text}"

    def as_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {
            "severity": self.severity.name.lower(),
            "place": self.place,
            "operator": self.operator,
            "subtasks": list(self.subtasks),
            "waits": list(self.waits),
            "cause": self.cause.name,
            "why": self.cause.text,
            "evidence": {name: round(value, 4) for name, value in self.cause.evidence.items()},
            "remedy": self.remedy.text,
            "gain": None if self.remedy.gain is None else round(self.remedy.gain, 2),
            "limit": self.remedy.limit,
            "hottest": [line.as_json() for line in self.hottest],
            "sentence": self.sentence,
        }


def _listed(names: tuple[str, ...]) -> str:
    """Return names with their verb: "'a' waits", "'a' and 'b' wait"."""
    if len(names) == 1:
        return f"{names[0]!r} waits"
    return f"{', '.join(repr(name) for name in names[:-1])} and {names[-1]!r} wait"
