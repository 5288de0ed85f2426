"""What all TaskManagers of a job reported last, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Counters = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The last reports of a job's TaskManagers, in the order of their numbers.

    `at` is the time of the snapshot in seconds since the epoch. A report is what `counters.snapshot` returns: totals
    from the start of the attempt, and values of the moment. Its `clock_s` is the time of the report, by a clock of the
    TaskManager: two reports of one TaskManager are that far apart.
    """

    at: float
    attempt: int
    reports: Sequence[Counters]
