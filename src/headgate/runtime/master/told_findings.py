"""Choose the findings that the driver writes to its log without a request of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.observe.finding import Finding, Severity
from headgate.observe.standing_watermarks import CAUSE

#: The least time, in seconds, between two log lines about a job that is behind or stuck.
QUIET: Final = 30.0


class ToldFindings:
    """Chooses the findings of one job that the driver logs.

    There is at most one line in 30 seconds about a job that is behind or stuck. There is one line for each watermark
    that does not advance.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._said_at: float | None = None
        #: The last logged watermark, by the names of the operators that wait for it.
        self._standing: dict[tuple[str, ...], float] = {}

    def lines(self, findings: Sequence[Finding], now: float) -> list[str]:
        """Return the log lines for the current findings, which have the worst finding first. `now` is in seconds."""
        return [*self._behind(findings, now), *self._stand(findings)]

    def _behind(self, findings: Sequence[Finding], now: float) -> list[str]:
        if self._said_at is not None and now - self._said_at < QUIET:
            return []
        bad = [each for each in findings if each.severity > Severity.LIMIT and each.cause.name != CAUSE]
        if not bad:
            return []
        self._said_at = now
        return [f"job {self._job!r} is {bad[0].severity.name.lower()}: {bad[0].sentence}"]

    def _stand(self, findings: Sequence[Finding]) -> list[str]:
        lines: list[str] = []
        for finding in findings:
            watermark = finding.cause.evidence.get("watermark")
            if finding.cause.name != CAUSE or watermark is None or self._standing.get(finding.waits) == watermark:
                continue
            self._standing[finding.waits] = watermark
            lines.append(f"job {self._job!r}: {finding.sentence}" + (f". {finding.note}" if finding.note else ""))
        return lines
