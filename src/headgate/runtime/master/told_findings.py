"""Choose the findings that the driver writes to its log without a request of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.observe.finding import Finding, Severity
from headgate.observe.standing_watermarks import CAUSE

#: The least time, in seconds, between two log lines about a job.
QUIET: Final = 30.0


class ToldFindings:
    """Chooses the findings of one job that the driver logs.

    There is at most one line in 30 seconds. A watermark that does not advance is logged once, before what may be
    logged again: that the job is behind or stuck.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._said_at: float | None = None
        #: The last logged watermark, by the names of the operators that wait for it.
        self._standing: dict[tuple[str, ...], float] = {}

    def lines(self, findings: Sequence[Finding], now: float) -> list[str]:
        """Return the log lines for the current findings, which have the worst finding first. `now` is in seconds."""
        if self._said_at is not None and now - self._said_at < QUIET:
            return []
        line = self._standing_line(findings) or self._bad_line(findings)
        if line is None:
            return []
        self._said_at = now
        return [line]

    def _standing_line(self, findings: Sequence[Finding]) -> str | None:
        for finding in findings:
            watermark = finding.cause.evidence.get("watermark")
            if finding.cause.name != CAUSE or watermark is None or self._standing.get(finding.waits) == watermark:
                continue
            self._standing[finding.waits] = watermark
            return f"job {self._job!r}: {finding.sentence}" + (f". {finding.note}" if finding.note else "")
        return None

    def _bad_line(self, findings: Sequence[Finding]) -> str | None:
        bad = [each for each in findings if each.severity > Severity.LIMIT and each.cause.name != CAUSE]
        return f"job {self._job!r} is {bad[0].severity.name.lower()}: {bad[0].sentence}" if bad else None
