"""Converts a timestamp column to event times (int64 microseconds since the epoch), and back to the column's type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.errors import DataError, PlanError
from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.records.canonical import Int64s, from_raw_values, raw_values

#: How many microseconds one unit has (first table), and how many units one microsecond has (second table).
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_PER_MICROSECOND = {"us": 1, "ns": 1_000}


def check_time_column(column: str, schema: pa.Schema) -> pa.DataType:
    """Return the type of the event-time column.

    Raises PlanError if no column, or more than one, has this name, or if the column is not a timestamp.
    """
    if schema.get_field_index(column) < 0:
        raise PlanError(f"there must be one event-time column {column!r}; the columns are: {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not pa.types.is_timestamp(kind):
        raise PlanError(f"event-time column {column!r} is {kind}, and event time must be a timestamp; cast it first")
    return kind


def event_times(column: pa.Array, name: str, offset: int) -> Int64s:
    """Return the event time of each row in microseconds, rounded down, plus `offset`. A null row gets an arbitrary
    value.

    Raises DataError for a time that does not fit into int64.
    """
    times = raw_values(column).view(np.int64)
    unit = column.type.unit
    if unit == "ns":
        times = times // _PER_MICROSECOND[unit]
    factor = _MICROSECONDS.get(unit, 1)
    if (factor > 1 or offset) and len(times):
        if column.null_count:
            times = np.where(column.is_valid().to_numpy(zero_copy_only=False), times, 0)
        for extreme in (int(times.min()), int(times.max())):
            if not MIN_TIME < extreme * factor + offset < MAX_TIME:
                raise DataError(
                    f"event time {extreme} {unit} in column {name!r} is too far from 1970 for 64-bit microseconds; "
                    "filter such rows out"
                )
        times = times * factor + offset
    return times


def time_span(times: Int64s) -> tuple[int, int]:
    """Return the least and the greatest of at least one time."""
    if len(times) == 1:  # much cheaper than two reductions
        first: int = times.item(0)
        return first, first
    return int(times.min()), int(times.max())


def unit_of(kind: pa.DataType) -> int:
    """Return how many microseconds one unit of the timestamp type `kind` has. For nanoseconds, return 1."""
    return _MICROSECONDS.get(kind.unit, 1)


def time_range(kind: pa.DataType) -> tuple[int, int]:
    """Return the least and the greatest time, in microseconds, that the timestamp type `kind` can hold."""
    per = _PER_MICROSECOND.get(kind.unit, 1)
    return MIN_TIME // per + 1, MAX_TIME // per


def as_timestamps(times: Int64s, kind: pa.DataType) -> pa.Array:
    """Return times in microseconds as a column of type `kind`. Each time must be in `time_range` and a multiple of
    `unit_of`."""
    times = times // unit_of(kind) * _PER_MICROSECOND.get(kind.unit, 1)
    return from_raw_values(times, None, kind)
