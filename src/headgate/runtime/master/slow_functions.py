"""`SlowFunctions`: profiles of the functions that a diagnosis blames, which nobody asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

from headgate.errors import HeadgateError
from headgate.observe.finding import Finding
from headgate.observe.profile import Profile

#: Causes that are the work of an operator's own function, reader or writer.
CAUSES: Final = frozenset({"slow_function", "waiting_function", "slow_source", "slow_sink", "slow_lookup"})
#: Seconds from one profile to the next.
PERIOD: Final = 60.0
#: Seconds of a profile.
SECONDS: Final = 2.0
#: Seconds after which a profile says nothing about the present any more.
_KEPT: Final = 2 * PERIOD


class SlowFunctions:
    """Takes a profile of what a diagnosis blames, at most once a minute. One thread calls `look`, any thread the rest.

    `ask` requests a profile of a subtask of an operator, for so many seconds.
    """

    def __init__(self, ask: Callable[[str, int, float], Future[Profile]]) -> None:
        self._ask: Callable[[str, int, float], Future[Profile]] | None = ask
        self._asked_at: float | None = None
        #: The last profile, and when it was requested.
        self._last: tuple[Profile, float] | None = None

    def look(self, findings: Sequence[Finding], now: float) -> None:
        """Request a profile of the first finding that blames a function, unless the last request was just before."""
        if self._ask is None or (self._asked_at is not None and abs(now - self._asked_at) < PERIOD):
            return
        for finding in findings:
            if finding.cause.name in CAUSES and finding.operator is not None:
                self._asked_at = now
                answer = self._ask(finding.operator, finding.subtasks[0], SECONDS)
                answer.add_done_callback(lambda done: self._note(done, now))
                return

    def close(self) -> None:
        """Request no more profiles. What answers them knows the user's functions, which the last report outlives."""
        self._ask = None

    def _note(self, answer: Future[Profile], at: float) -> None:
        try:
            self._last = answer.result(0), at
        except HeadgateError:  # the task or the job has ended meanwhile
            pass

    def explained(self, findings: Sequence[Finding], now: float) -> list[Finding]:
        """Return the findings, with the hottest lines of the one whose function was profiled."""
        if self._last is None or abs(now - self._last[1]) > _KEPT:
            return list(findings)
        profile = self._last[0]
        return [
            replace(finding, hottest=tuple(profile.hottest)) if _is_of(profile, finding) else finding
            for finding in findings
        ]


def _is_of(profile: Profile, finding: Finding) -> bool:
    is_function = finding.cause.name in CAUSES and finding.operator == profile.operator
    return is_function and profile.subtask in finding.subtasks
