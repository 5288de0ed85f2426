"""One finding of the diagnosis: where a job is limited, why, the evidence for this, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.observe.heavy_keys import HotKey
from headgate.observe.profile import HotLine


class Severity(enum.IntEnum):
    """How bad a finding is.

    LIMIT: the place limits the job's speed, but the job keeps up; some place is always the slowest. BEHIND: the lag of
    a source grows. STUCK: no row moves.
    """

    LIMIT = 1
    BEHIND = 2
    STUCK = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a place is slow.

    `name` identifies the cause for programs. `text` is the cause as a part of the finding's sentence. `evidence` has
    the measured values by name.
    """

    name: str
    text: str
    evidence: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do about a cause.

    With the remedy, the job would carry `gain` times as many rows; None if this is not known. `limit` says what would
    then limit the job, for example the next operator or the processors. If `at_least` is True, the gain is the part
    that the measurements show, and the job may gain more.
    """

    text: str
    gain: float | None = None
    limit: str = ""
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A place that limits the job's throughput. `place` is its name. `waits` has the names of the operators that wait.

    `subtasks` are the slow subtasks of `operator`. A slow exchange has no `vertex` and no `operator`.
    """

    place: str
    vertex: int | None
    operator: str | None
    subtasks: tuple[int, ...]
    waits: tuple[str, ...]
    cause: Cause
    remedy: Remedy
    is_source: bool = False
    severity: Severity = Severity.LIMIT
    #: The lines of the function with most samples, the hottest first. Empty if no function was profiled.
    hottest: tuple[HotLine, ...] = ()
    #: The keys with most of the rows of the slow subtasks, the hottest first. Keys are data: `as_json` and `sentence`,
    #: which pages, recordings and logs show, do not contain them.
    hot_keys: tuple[HotKey, ...] = ()
    #: Text that only the driver's log shows. The page does not show it, because it may contain names of data.
    note: str = ""

    @property
    def sentence(self) -> str:
        """The finding in one line: where, why and what to do."""
        return self._sentence("")

    @property
    def sentence_with_keys(self) -> str:
        """The finding in one line, with the names of hot keys. Only the job's own program may see keys."""
        return self._sentence(_listed_keys(self.hot_keys, self.subtasks))

    def _sentence(self, keys: str) -> str:
        line = f", {self.hottest[0].share:.0%} of it in {self.hottest[0].frame.short}" if self.hottest else ""
        who = f"{_listed(self.waits)} for {self.place}" if self.waits else f"rows queue for {self.place}"
        if self.is_source and not self.waits:
            who = f"{self.place} is the limit"
        return f"{who}: {self.cause.text}{keys}{line}; {self.remedy.text}"

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
            "at_least": self.remedy.at_least,
            "limit": self.remedy.limit,
            "hottest": [line.as_json() for line in self.hottest],
            "sentence": self.sentence,
        }


def _listed(names: tuple[str, ...]) -> str:
    """Return names with their verb: "'a' waits", "'a' and 'b' wait"."""
    if len(names) == 1:
        return f"{names[0]!r} waits"
    return f"{', '.join(repr(name) for name in names[:-1])} and {names[-1]!r} wait"


def _listed_keys(keys: Sequence[HotKey], subtasks: Sequence[int]) -> str:
    """Return hot keys as a part of a sentence. With several slow subtasks, each key has the number of its subtask."""
    several = len(subtasks) > 1
    texts = [f"{each.key} ({each.share:.0%}{f' of [{each.subtask}]' if several else ''})" for each in keys]
    return f", most for the key{'s' if len(texts) > 1 else ''} {', '.join(texts)}" if texts else ""
