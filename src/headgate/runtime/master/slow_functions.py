"""`SlowFunctions`: profiles functions that a diagnosis names as the cause, without a request of the user."""

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
#: Seconds after which a profile is too old to describe the job.
_KEPT: Final = 2 * PERIOD


class SlowFunctions:
    """Profiles the functions that findings name as the cause, at most one profile a minute.

    One thread calls `look`. Any thread may call the other methods. `ask(operator, subtask, seconds)` requests a
    profile.
    """

    def __init__(self, ask: Callable[[str, int, float], Future[Profile]]) -> None:
        self._ask: Callable[[str, int, float], Future[Profile]] | None = ask
        self._asked_at: float | None = None
        #: The last profile, and when it was requested.
        self._last: tuple[Profile, float] | None = None

    def look(self, findings: Sequence[Finding], now: float) -> None:
        """Request a profile for the first finding whose cause is a function, if the last request is old enough."""
        if self._ask is None or (self._asked_at is not None and abs(now - self._asked_at) < PERIOD):
            return
        for finding in findings:
            if finding.cause.name in CAUSES and finding.operator is not None:
                self._asked_at = now
                answer = self._ask(finding.operator, finding.subtasks[0], SECONDS)
                answer.add_done_callback(lambda done: self._note(done, now))
                return

    def close(self) -> None:
        """Request no more profiles, and drop `ask`, which keeps the user's functions alive."""
        self._ask = None

    def _note(self, answer: Future[Profile], at: float) -> None:
        try:
            self._last = answer.result(0), at
        except HeadgateError:  # the task or the job has ended meanwhile
            pass

    def explained(self, findings: Sequence[Finding], now: float) -> list[Finding]:
        """Return the findings. Those whose function was profiled lately get the profile's hottest lines."""
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
