"""`hg.Watermark`: which column holds event time, and how far out of order it may be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from headgate.api.checks import check_columns
from headgate.errors import ConfigError, PlanError
from headgate.plan.graph import WatermarkSpec
from headgate.quantities import microseconds, seconds


@dataclass(frozen=True, slots=True)
class Watermark:
    """How a source tells how far event time has come: the largest time seen in a split minus `out_of_orderness`.

    `column` is a timestamp column; without a zone it is UTC. A row that comes later than the bound allows is late: it
    is counted and left out of windows that have fired. Files are read one after the other: where a later one goes back
    in time, `out_of_orderness` must cover how far, or its rows are late; `JobResult.late_rows` counts them.
    `idle_timeout` (off by default, never for bounded sources): after that long without rows a subtask no longer holds
    back the others. A null in the column is an error, or the row counts as late with `on_null_time="late"`. Durations
    are seconds, "1 h", "200 ms" or a `timedelta`.
    """

    column: str
    out_of_orderness: float | str | timedelta = "0 s"
    idle_timeout: float | str | timedelta | None = None
    on_null_time: Literal["error", "late"] = "error"

    def __post_init__(self) -> None:
        if _duration("out_of_orderness", self.out_of_orderness) < 0:
            raise PlanError(f"Watermark: out_of_orderness={self.out_of_orderness!r} must not be negative")
        if self.idle_timeout is not None and _duration("idle_timeout", self.idle_timeout) <= 0:
            raise PlanError(f"Watermark: idle_timeout={self.idle_timeout!r} must be above 0, or None for never")
        if self.on_null_time not in ("error", "late"):
            raise PlanError(f"Watermark: on_null_time={self.on_null_time!r} must be 'error' or 'late'")

    def spec(self, schema: pa.Schema) -> WatermarkSpec:
        """The plan's form of it. Raises PlanError when `schema` has no such timestamp column."""
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
        )


def _duration(name: str, value: object) -> float:
    try:
        return seconds(value)
    except ConfigError as error:
        raise PlanError(f"Watermark: {name}: {error.message}") from None
