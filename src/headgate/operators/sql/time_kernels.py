"""Functions of whole columns of times. Timestamps have no zone here: they are UTC.

The calendar is NumPy's: `datetime64` counts months and days before and after 1970 by the Gregorian rules.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.records.canonical import Bools, Int64s, as_arrow, from_raw_values, null_mask, raw_values

Times = npt.NDArray[np.datetime64]

#: Microseconds of each unit that always has the same length.
UNITS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
#: Months of each unit that has no fixed length.
MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def moments(column: pa.Array) -> Times:
    """Return timestamps or dates as datetime64 of the column's unit. A null becomes 1970."""
    unit = "D" if pa.types.is_date32(column.type) else column.type.unit
    numbers = raw_values(column).astype(np.int64)
    mask = null_mask(column)
    numbers = numbers if mask is None else np.where(mask, 0, numbers)
    return numbers.view(f"datetime64[{unit}]")


def dates(days: npt.NDArray[Any], nulls: Bools | None) -> pa.Array:
    """Return days since 1970 as dates. Raises ArrowInvalid for a day that 32 bits cannot hold."""
    long = days.astype(np.int64)
    short = long.astype(np.int32)
    is_lost = short != long
    if (is_lost if nulls is None else is_lost & ~nulls).any():
        raise pa.ArrowInvalid("a date has 32 bits")
    return pc.cast(as_arrow(short, nulls), pa.date32())


def durations(unit: str, column: pa.Array) -> pa.Array:
    """Return durations in another unit. Raises ArrowInvalid for one that 64 bits cannot hold."""
    return pc.cast(column, pa.duration(unit))


def nulls_of(*columns: pa.Array) -> Bools | None:
    masks = [mask for mask in map(null_mask, columns) if mask is not None]
    return np.logical_or.reduce(masks) if masks else None


def numbers_of(column: pa.Array) -> Int64s:
    """Return an integer column, with 0 in place of null."""
    return raw_values(pc.fill_null(column, 0)).astype(np.int64)


def zero_at_nulls(column: pa.Array) -> pa.Array:
    """Return a column of times whose nulls have the value 0 in memory."""
    nulls = null_mask(column)
    return column if nulls is None else from_raw_values(np.where(nulls, 0, raw_values(column)), nulls, column.type)


def add_months(column: pa.Array, months: pa.Array) -> pa.Array:
    """Add months. If the month has no such day, the result is its last day. The time of the day stays."""
    times = moments(column)
    days = times.astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    target = (month.astype(np.int64) + numbers_of(months)).view("datetime64[M]")
    day = np.minimum(days - month.astype("datetime64[D]"), _days_in(target) - 1)
    result = (target.astype("datetime64[D]") + day).astype(times.dtype) + (times - days)
    nulls = nulls_of(column, months)
    if pa.types.is_date32(column.type):
        return dates(result, nulls)
    return pc.cast(as_arrow(result.view(np.int64), nulls), column.type)


def _days_in(month: Times) -> npt.NDArray[np.timedelta64]:
    days: npt.NDArray[np.timedelta64] = (month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")
    return days


def last_day(column: pa.Array) -> pa.Array:
    month = moments(column).astype("datetime64[M]")
    return dates((month + 1).astype("datetime64[D]") - 1, nulls_of(column))


def add_days(column: pa.Array, days: pa.Array) -> pa.Array:
    return dates(moments(column).view(np.int64) + numbers_of(days), nulls_of(column, days))


def days_between(end: pa.Array, start: pa.Array) -> pa.Array:
    return pc.subtract(pc.cast(pc.cast(end, pa.int32()), pa.int64()), pc.cast(pc.cast(start, pa.int32()), pa.int64()))


def make_date(year: pa.Array, month: pa.Array, day: pa.Array) -> pa.Array:
    """Return dates, or null for a day that does not exist."""
    days, is_day = civil_days(numbers_of(year), numbers_of(month), numbers_of(day))
    nulls = nulls_of(year, month, day)
    return dates(days, ~is_day if nulls is None else nulls | ~is_day)


def civil_days(year: Int64s, month: Int64s, day: Int64s) -> tuple[Int64s, Bools]:
    """Return the days since 1970 of each date, and whether there is such a date."""
    is_month = (month >= 1) & (month <= 12) & (np.abs(year) < 300_000)
    months = (np.where(is_month, (year - 1970) * 12 + month - 1, 0)).view("datetime64[M]")
    exists = is_month & (day >= 1) & (day <= _days_in(months).astype(np.int64))
    return months.astype("datetime64[D]").astype(np.int64) + day - 1, exists


def truncate(column: pa.Array, unit: str) -> pa.Array:
    """Return the first moment of the unit that holds each moment: a Monday for weeks."""
    if unit in MONTHS:
        months = moments(column).astype("datetime64[M]").astype(np.int64)
        months -= months % MONTHS[unit]
        values = months.view("datetime64[M]").astype("datetime64[us]").view(np.int64)
    else:
        values = moments(column).astype("datetime64[us]").view(np.int64)
        shift = 3 * UNITS["day"] if unit == "week" else 0  # 1970 began on a Thursday
        values = values - (values + shift) % UNITS[unit]
    return pc.cast(as_arrow(values, nulls_of(column)), pa.timestamp("us"))


def between(start: pa.Array, end: pa.Array, unit: str) -> pa.Array:
    """Return how many whole units lie between two moments. The number is negative if the end is earlier."""
    nulls = nulls_of(start, end)
    first, last = (moments(column).astype("datetime64[us]") for column in (start, end))
    if unit not in MONTHS:
        distance = last.view(np.int64) - first.view(np.int64)
        return as_arrow(np.sign(distance) * (np.abs(distance) // UNITS[unit]), nulls)
    # As in Java: the earlier clock time takes a day from the distance, and the months are cut towards zero.
    days = [times.astype("datetime64[D]") for times in (first, last)]
    clocks = [times - day for times, day in zip((first, last), days, strict=True)]
    days[1] = days[1] - ((days[1] > days[0]) & (clocks[1] < clocks[0])).astype(np.int64)
    days[1] = days[1] + ((days[1] < days[0]) & (clocks[1] > clocks[0])).astype(np.int64)
    start_number, end_number = map(_days_of_long_months, days)
    months = np.trunc((end_number - start_number) / 32).astype(np.int64)
    return as_arrow(np.sign(months) * (np.abs(months) // MONTHS[unit]), nulls)


def _days_of_long_months(days: Times) -> Int64s:
    """Return the number of each day if all months had 32 days."""
    month = days.astype("datetime64[M]")
    numbers: Int64s = month.astype(np.int64) * 32 + (days - month.astype("datetime64[D]")).astype(np.int64)
    return numbers


def cut_div(column: pa.Array, divisor: int) -> pa.Array:
    """Return a time column divided by `divisor`, without its fraction, towards zero."""
    numbers = numbers_of(pc.cast(column, pa.int64()))
    return as_arrow(np.sign(numbers) * (np.abs(numbers) // divisor), nulls_of(column))


def floor_div(column: pa.Array, divisor: int) -> pa.Array:
    """Return an integer or time column divided by `divisor`, without its fraction, towards minus infinity."""
    return as_arrow(numbers_of(pc.cast(column, pa.int64())) // divisor, nulls_of(column))


def seconds_with_fraction(column: pa.Array) -> pa.Array:
    """Return the second of the minute with its microseconds, as a decimal(8, 6)."""
    rest = numbers_of(pc.cast(column, pa.int64())) % UNITS["minute"]
    words = np.stack([rest, np.zeros_like(rest)], axis=1)
    return pa.Array.from_buffers(pa.decimal128(8, 6), len(rest), [_validity(column), pa.py_buffer(words)])


def _validity(column: pa.Array) -> pa.Buffer | None:
    nulls = null_mask(column)
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))


def from_number(column: pa.Array, scale: int) -> pa.Array:
    """Return the timestamps that lie `column * scale` microseconds after 1970."""
    return pc.cast(pc.multiply_checked(column, scale), pa.timestamp("us"))
