"""The last reports of all TaskManagers of a job, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

Counters = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """The last reports of a job's TaskManagers, in the order of their numbers.

    `at` is the time of the snapshot in seconds since the epoch. A report is a result of `counters.snapshot`. It has
    totals from the start of the attempt, and current values. Its `clock_s` is the time of the report on a clock of the
    TaskManager. Only the difference of two `clock_s` of the same TaskManager has a meaning.

    `driver` has the driver's `host`, `clock_s`, `pid`, `pid_namespace`, `cpu_s`, `affinity` and `quotas`, as reports
    have them. Old recordings do not have it.
    """

    at: float
    attempt: int
    reports: Sequence[Counters]
    driver: Counters | None = None


def as_json(metrics: object) -> bytes:
    """Return metrics as JSON, numbers of NumPy included. A number that is not finite becomes null.

    Raises UnicodeEncodeError for a name with a surrogate, as the name of a file may have.

    >>> as_json({"rows": 7})
    b'{"rows":7}'
    """
    return msgspec.json.encode(metrics, enc_hook=lambda number: number.item())
