"""`hg.Watermark`: the column of event time, and how much its values may be out of order."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from headgate.api.checks import check_columns
from headgate.errors import ConfigError, PlanError
from headgate.plan.graph import WatermarkSpec
from headgate.quantities import microseconds, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The rule for the watermarks of a source. A watermark is the largest time in a split so far, minus
    `out_of_orderness`.

    `column` is a timestamp column; a column without a zone is UTC. A row is late if it arrives after the watermark has
    reached the end of its window. The window then does not count the row, but `JobResult.late_rows` does. A source
    reads files one after the other. If a later file has earlier times, `out_of_orderness` must cover the difference, or
    the rows of this file are late.

    After `idle_timeout` without rows, a source subtask no longer holds back the watermarks of others. By default, a
    subtask without rows always holds them back. A bounded source ignores `idle_timeout`. A null in the column fails the
    job. With `on_null_time="late"`, a row with a null counts as late; `deduplicate` by time, and running `first` and
    `last`, raise DataError for it.

    With `max_drift`, a source subtask waits while its watermark is more than `max_drift` ahead of that of the slowest
    subtask of this source. A split that is read at the same time as others, such as a partition of Kafka, waits for the
    slowest split of its subtask. So few windows are open at once, even if subtasks read files of different ages. Idle
    subtasks and splits, and those that have ended, do not count. A split without rows does: without `idle_timeout`, one
    empty partition stops the others of its subtask. Batch mode ignores `max_drift`.

    Sources with the same `group` wait for the slowest subtask of all of them. Each source has its own `max_drift`.

    Durations are seconds, strings such as "1 h" and "200 ms", or `timedelta`. Raises PlanError for impossible values.

    >>> watermark = hg.Watermark("at", out_of_orderness="5 s")
    >>> rows = pa.record_batch({"at": pa.array([30, 90], pa.timestamp("s", tz="UTC"))})
    >>> env = hg.StreamEnvironment()
    >>> minutes = env.from_source(hg.sources.iterable([rows]), watermark=watermark).key_by().window(hg.tumble("1 min"))
    """

    column: str = field(kw_only=False)
    out_of_orderness: float | str | timedelta = field(default="0 s", kw_only=False)
    idle_timeout: float | str | timedelta | None = None
    on_null_time: Literal["error", "late"] = "error"
    max_drift: float | str | timedelta | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        if _duration("out_of_orderness", self.out_of_orderness) < 0:
            raise PlanError(f"Watermark: out_of_orderness={self.out_of_orderness!r} must not be negative")
        if self.idle_timeout is not None and _duration("idle_timeout", self.idle_timeout) <= 0:
            raise PlanError(f"Watermark: idle_timeout={self.idle_timeout!r} must be above 0, or None for no timeout")
        if self.max_drift is not None and _duration("max_drift", self.max_drift) < 1e-6:
            raise PlanError(f"Watermark: max_drift={self.max_drift!r} must be above 0, or None for no limit")
        if self.group is not None and (not isinstance(self.group, str) or not self.group):
            raise PlanError(f"Watermark: group={self.group!r} must be a name, such as 'trips'")
        if self.group is not None and self.max_drift is None:
            raise PlanError(f"Watermark: group={self.group!r} needs max_drift, by how much a source may be ahead")
        if self.on_null_time not in ("error", "late"):
            raise PlanError(f"Watermark: on_null_time={self.on_null_time!r} must be 'error' or 'late'")

    def spec(self, schema: pa.Schema) -> WatermarkSpec:
        """Return the watermark in the form of the plan. Raises PlanError if `schema` has no such timestamp column."""
        check_columns("Watermark", [self.column], schema)
        time_type = schema.field(self.column).type
        if not pa.types.is_timestamp(time_type):
            raise PlanError(
                f"Watermark: column {self.column!r} is {time_type}, and event time must be a timestamp; "
                "give it a timestamp type in the source's schema"
            )
        return WatermarkSpec(
            column=self.column,
            out_of_orderness=microseconds(self.out_of_orderness),
            idle_timeout=None if self.idle_timeout is None else seconds(self.idle_timeout),
            on_null_time=self.on_null_time,
            max_drift=None if self.max_drift is None else microseconds(self.max_drift),
            group=self.group,
        )


def _duration(name: str, value: object) -> float:
    try:
        return seconds(value)
    except ConfigError as error:
        raise PlanError(f"Watermark: {name}: {error.message}") from None
