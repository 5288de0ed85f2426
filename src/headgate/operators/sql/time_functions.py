"""The functions of dates and times, and the literals of times."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql import time_kernels as kernels
from headgate.operators.sql import time_text
from headgate.operators.sql.casts import cast_node
from headgate.operators.sql.function_arguments import Arguments, as_type
from headgate.operators.sql.function_table import Function
from headgate.operators.sql.sql_calls import Apply
from headgate.operators.sql.sql_eval import Call, Literal, SqlNode

_INT = pa.int64()
_UTC = pa.timestamp("us", "UTC")
_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
_INTERVAL_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s+([a-z]+?)s?(?=\s|$)")


@dataclass(frozen=True, slots=True)
class Interval(Literal):
    """An interval: a number of months, or a length of time. `has_clock` tells whether it has units below a day."""

    has_clock: bool = False


# -- literals


def _date_literal(arguments: Arguments) -> SqlNode:
    if not arguments.is_literal(0):
        return cast_node(arguments.node(0), pa.date32(), strict=False) or arguments.refuse(0, "not a date")
    text = arguments.text(0)
    try:
        return Literal(date.fromisoformat(text), pa.date32())
    except ValueError:
        arguments.refuse(0, f"{text!r} is not a date like '2024-01-31'")


def _timestamp_literal(arguments: Arguments) -> SqlNode:
    if not arguments.is_literal(0):
        return cast_node(arguments.node(0), _UTC, strict=False) or arguments.refuse(0, "not a timestamp")
    text = arguments.text(0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        arguments.refuse(0, f"{text!r} is not a timestamp like '2024-01-31 13:45:00' or '...+01:00'")
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return Literal(moment, _UTC)


def _interval(arguments: Arguments) -> SqlNode:
    text = arguments.text(0).lower().strip()
    parts = _INTERVAL_PART.findall(text)
    if not parts or _INTERVAL_PART.sub("", text).strip():
        arguments.refuse(0, f"{text!r} is not an interval like interval 90 minutes or interval '1 day 2 hours'")
    months, microseconds, has_clock = 0, 0, False
    for number, unit in parts:
        if unit not in (*kernels.UNITS, "month", "year"):
            known = ", ".join((*kernels.UNITS, "month", "year"))
            arguments.refuse(0, f"no unit {unit!r}; the units are: {known}")
        if "." in number and unit != "second":
            arguments.refuse(0, f"{number} {unit}: only seconds have a fraction")
        if unit in kernels.MONTHS:
            months += int(number) * kernels.MONTHS[unit]
        else:
            has_clock |= unit not in ("day", "week")
            microseconds += round(float(number) * 1_000_000) if "." in number else int(number) * kernels.UNITS[unit]
    is_months = any(unit in kernels.MONTHS for _, unit in parts)
    if is_months and any(unit in kernels.UNITS for _, unit in parts):
        arguments.refuse(0, "an interval has either years and months, or weeks, days and shorter units")
    if is_months:
        return Interval(pa.MonthDayNano([months, 0, 0]), pa.month_day_nano_interval())
    if abs(microseconds) >= 86_400_000_000 * 100_000_000:
        arguments.refuse(0, f"{text!r} is too long")
    return Interval(timedelta(microseconds=microseconds), pa.duration("us"), None, has_clock)


# -- arithmetic


def time_arithmetic(left: SqlNode, right: SqlNode, is_sum: bool) -> SqlNode | None:
    """Return the sum or difference of times, intervals and days, or None for types that have none."""
    kinds = _kind(left), _kind(right)
    if kinds[0] in ("days", "months", "integer") and is_sum:
        left, right, kinds = right, left, (kinds[1], kinds[0])
    match kinds:
        case ("days", "days"):
            return _sum(left, right, is_sum, pa.duration("us"))
        case ("date" | "timestamp", "days"):
            return _shifted(left, right, is_sum)
        case ("date" | "timestamp", "months") if isinstance(right, Literal):
            months = right.value.months
            function = kernels.add_months
            operands = (left if kinds[0] == "date" else moment_of(left), Literal(months if is_sum else -months, _INT))
            return _in_zone(Apply(function, operands, operands[0].type), left.type)
        case ("date", "integer"):
            days = as_type(right, _INT)
            days = days if is_sum else Call("negate_checked", (days,), _INT)
            return Apply(kernels.add_days, (as_type(left, pa.date32()), days), pa.date32())
        case ("date" | "timestamp", "date" | "timestamp") if not is_sum:
            moments = tuple(as_type(node, pa.timestamp("us")) for node in (left, right))
            return Call("subtract", moments, pa.duration("us"))
    return None


def _kind(node: SqlNode) -> str:
    types = pa.types
    for kind, test in (
        ("days", types.is_duration),
        ("months", types.is_interval),
        ("date", types.is_date),
        ("timestamp", types.is_timestamp),
        ("integer", types.is_integer),
    ):
        if test(node.type):
            return kind
    return "other"


def _shifted(left: SqlNode, right: SqlNode, is_sum: bool) -> SqlNode:
    """Return a time moved by a length of time. A date moved by whole days stays a date."""
    length = as_type(right, pa.duration("us"))
    moment = moment_of(left)
    unit = moment.type.unit
    if unit != "us":
        length = Apply(partial(kernels.durations, unit), (length,), pa.duration(unit))
    moved = _sum(moment, length, is_sum, moment.type)
    if pa.types.is_date(left.type):
        stays = isinstance(right, Interval) and not right.has_clock
        return as_type(moved, pa.date32()) if stays else as_type(moved, _UTC)
    return _in_zone(moved, left.type)


def _sum(left: SqlNode, right: SqlNode, is_sum: bool, kind: pa.DataType) -> SqlNode:
    """Return the sum or difference of a time or an interval and an interval.

    Arrow calculates with times that are null, too, so their values must not overflow.
    """
    operands = tuple(Apply(kernels.zero_at_nulls, (node,), node.type) for node in (left, right))
    return Call("add_checked" if is_sum else "subtract_checked", operands, kind)


def moment_of(node: SqlNode) -> SqlNode:
    """Return a date or a timestamp as a timestamp without a zone, in microseconds or nanoseconds."""
    unit = node.type.unit if pa.types.is_timestamp(node.type) and node.type.unit == "ns" else "us"
    return as_type(node, pa.timestamp(unit))


def _in_zone(node: SqlNode, like: pa.DataType) -> SqlNode:
    """Give a timestamp the zone of the type `like`, or UTC if that is a date. A `node` that is a date stays a date."""
    if pa.types.is_date(node.type):
        return node
    return as_type(node, pa.timestamp(node.type.unit, like.tz if pa.types.is_timestamp(like) else "UTC"))


# -- parts of a time


def _part(function: Callable[..., pa.Array]) -> Callable[[Arguments], SqlNode]:
    return lambda arguments: arguments.apply(function, _INT, arguments.moment(0))


_weekday = partial(pc.day_of_week, count_from_zero=True)
_day_of_week = partial(pc.day_of_week, count_from_zero=False, week_start=7)
_iso_day = partial(pc.day_of_week, count_from_zero=False)
_FIELDS: dict[str, Callable[..., pa.Array]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "dayofweek": _day_of_week,
    "dow": _day_of_week,
    "dayofweek_iso": _iso_day,
    "dow_iso": _iso_day,
    "doy": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "yearofweek": pc.iso_year,
}


def _extract(arguments: Arguments) -> SqlNode:
    field = arguments.text(0).lower()
    field = field[:-1] if field.endswith("s") and field[:-1] in (*_FIELDS, "second") else field
    if field == "second":
        return arguments.apply(kernels.seconds_with_fraction, pa.decimal128(8, 6), arguments.moment(1))
    if field not in _FIELDS:
        arguments.refuse(0, f"no field {field!r}; the fields are: {', '.join((*_FIELDS, 'second'))}")
    return arguments.apply(_FIELDS[field], _INT, arguments.moment(1))


_UNIT_NAMES = {
    **{unit: unit for unit in (*kernels.UNITS, *kernels.MONTHS)},
    "yyyy": "year",
    "yy": "year",
    "mon": "month",
    "mm": "month",
    "dd": "day",
}


def _unit(arguments: Arguments, index: int) -> str:
    text = arguments.text(index)
    unit = _UNIT_NAMES.get(text.lower())
    if unit is None:
        known = ", ".join((*kernels.MONTHS, *kernels.UNITS))
        arguments.refuse(index, f"no unit {text!r}; the units are: {known}")
    return unit


def _truncate(arguments: Arguments) -> SqlNode:
    unit, node = _unit(arguments, 0), arguments.time(1)
    result = arguments.apply(partial(kernels.truncate, unit=unit), pa.timestamp("us"), arguments.moment(1))
    return _in_zone(result, node.type)


def _truncate_date(arguments: Arguments) -> SqlNode:
    unit = _unit(arguments, 1)
    if unit not in (*kernels.MONTHS, "week"):
        arguments.refuse(1, f"{unit} is shorter than a week; use date_trunc for it")
    function = partial(kernels.truncate, unit=unit)
    return as_type(arguments.apply(function, pa.timestamp("us"), arguments.moment(0)), pa.date32())


# -- other functions


def _add_units(arguments: Arguments) -> SqlNode:
    unit, count, node = _unit(arguments, 0), arguments.integer(1), arguments.time(2)
    if unit in kernels.MONTHS:
        months = Call("multiply_checked", (count, Literal(kernels.MONTHS[unit], _INT)), _INT)
        moment = arguments.moment(2)
        return _in_zone(arguments.apply(kernels.add_months, moment.type, moment, months), node.type)
    length = Call("multiply_checked", (count, Literal(kernels.UNITS[unit], _INT)), _INT)
    moment = moment_of(node)
    moved = _shifted(
        as_type(moment, _UTC) if pa.types.is_date(node.type) else node, as_type(length, pa.duration("us")), True
    )
    return moved


def _add_days(sign: int) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        if len(arguments) == 3:
            return _add_units(arguments)
        days = arguments.integer(1)
        days = days if sign > 0 else Call("negate_checked", (days,), _INT)
        return arguments.apply(kernels.add_days, pa.date32(), arguments.date(0), days)

    return build


def _add_months(arguments: Arguments) -> SqlNode:
    return arguments.apply(kernels.add_months, pa.date32(), arguments.date(0), arguments.integer(1))


def _days_between(arguments: Arguments) -> SqlNode:
    if len(arguments) == 3:
        return _units_between(arguments)
    return arguments.apply(kernels.days_between, _INT, arguments.date(0), arguments.date(1))


def _units_between(arguments: Arguments) -> SqlNode:
    function = partial(kernels.between, unit=_unit(arguments, 0))
    return arguments.apply(function, _INT, arguments.moment(1), arguments.moment(2))


def _last_day(arguments: Arguments) -> SqlNode:
    return arguments.apply(kernels.last_day, pa.date32(), arguments.date(0))


def _make_date(arguments: Arguments) -> SqlNode:
    return arguments.apply(kernels.make_date, pa.date32(), *(arguments.integer(index) for index in range(3)))


def _fields(arguments: Arguments, index: int, *, is_parsed: bool) -> tuple[time_text.Field, ...]:
    text = arguments.text(index) if len(arguments) > index else _DEFAULT_PATTERN
    try:
        return time_text.pattern_fields(text, is_parsed=is_parsed)
    except ValueError as error:
        arguments.refuse(index, str(error))


def _to_timestamp(arguments: Arguments) -> SqlNode:
    if len(arguments) == 1 or not arguments.is_string(0):
        node = cast_node(arguments.node(0), _UTC, strict=False)
        return node or arguments.refuse(0, "takes a string, a number of seconds, a date or a timestamp")
    return as_type(_parsed(arguments), _UTC)


def _parsed(arguments: Arguments) -> SqlNode:
    function = partial(time_text.parse_with, fields=_fields(arguments, 1, is_parsed=True))
    return arguments.apply(function, pa.timestamp("us"), arguments.string(0))


def _to_date(arguments: Arguments) -> SqlNode:
    if len(arguments) == 1 or not arguments.is_string(0):
        node = cast_node(arguments.node(0), pa.date32(), strict=False)
        return node or arguments.refuse(0, "takes a string, a date or a timestamp")
    return as_type(_parsed(arguments), pa.date32())


def _format(arguments: Arguments) -> SqlNode:
    function = partial(time_text.format_with, fields=_fields(arguments, 1, is_parsed=False))
    return arguments.apply(function, pa.string(), arguments.moment(0))


def _from_seconds_as_text(arguments: Arguments) -> SqlNode:
    moment = arguments.apply(partial(kernels.from_number, scale=1_000_000), pa.timestamp("us"), arguments.integer(0))
    function = partial(time_text.format_with, fields=_fields(arguments, 1, is_parsed=False))
    return arguments.apply(function, pa.string(), moment)


def _unix_timestamp(arguments: Arguments) -> SqlNode:
    moment = _parsed(arguments) if arguments.is_string(0) else as_type(arguments.moment(0), pa.timestamp("us"))
    return arguments.apply(partial(kernels.cut_div, divisor=1_000_000), _INT, moment)


def _unix(divisor: int) -> Callable[[Arguments], SqlNode]:
    return lambda arguments: arguments.apply(
        partial(kernels.floor_div, divisor=divisor), _INT, as_type(arguments.moment(0), pa.timestamp("us"))
    )


def _from_unix(scale: int) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        function = partial(kernels.from_number, scale=scale)
        return as_type(arguments.apply(function, pa.timestamp("us"), arguments.integer(0)), _UTC)

    return build


TIME_FUNCTIONS = (
    Function("date(x)", "x as a date; date '2024-01-31' is a literal", _date_literal, 1, 1),
    Function(
        "timestamp(x)", "x as a timestamp; timestamp '2024-01-31 13:45:00' is a literal", _timestamp_literal, 1, 1
    ),
    Function(
        "interval('1 day 2 hours')",
        "a length of time, as the literal interval '1 day 2 hours'; also years and months",
        _interval,
        1,
        1,
    ),
    Function("date_trunc(unit, t)", "the start of the unit that contains t, such as 'hour'", _truncate, 2, 2),
    Function("trunc(t, unit)", "the first day of the week, month, quarter or year", _truncate_date, 2, 2),
    Function(
        "extract(field from t)",
        "a part of t: year, quarter, month, week, day, dow, doy, hour, minute, second (with its fraction) ...",
        _extract,
        2,
        2,
        other_names=("date_part", "datepart"),
    ),
    Function("year(t)", "the year", _part(pc.year), 1, 1),
    Function("quarter(t)", "the quarter, 1 to 4", _part(pc.quarter), 1, 1),
    Function("month(t)", "the month, 1 to 12", _part(pc.month), 1, 1),
    Function("day(t)", "the day of the month", _part(pc.day), 1, 1, other_names=("dayofmonth",)),
    Function("dayofweek(t)", "the day of the week: 1 is Sunday, 7 is Saturday", _part(_day_of_week), 1, 1),
    Function("weekday(t)", "the day of the week: 0 is Monday, 6 is Sunday", _part(_weekday), 1, 1),
    Function("dayofyear(t)", "the day of the year", _part(pc.day_of_year), 1, 1),
    Function("weekofyear(t)", "the week of the year, by ISO 8601", _part(pc.iso_week), 1, 1),
    Function("hour(t)", "the hour", _part(pc.hour), 1, 1),
    Function("minute(t)", "the minute", _part(pc.minute), 1, 1),
    Function("second(t)", "the second, without its fraction", _part(pc.second), 1, 1),
    Function(
        "date_add(t, days)",
        "the date some days later; also date_add(unit, n, t)",
        _add_days(1),
        2,
        3,
        other_names=("dateadd",),
    ),
    Function("date_sub(t, days)", "the date some days earlier", _add_days(-1), 2, 2),
    Function("add_months(t, months)", "the date some months later", _add_months, 2, 2),
    Function(
        "datediff(end, start)",
        "the days between two dates; also datediff(unit, start, end)",
        _days_between,
        2,
        3,
        other_names=("date_diff",),
    ),
    Function("timestampadd(unit, n, t)", "t moved by n units, as in timestampadd(hour, 2, t)", _add_units, 3, 3),
    Function("timestampdiff(unit, start, end)", "the whole units between two times", _units_between, 3, 3),
    Function("last_day(t)", "the last day of the month", _last_day, 1, 1),
    Function("make_date(year, month, day)", "a date; null if there is no such day", _make_date, 3, 3),
    Function("to_date(x[, pattern])", "x as a date; null if the text has another form", _to_date, 1, 2),
    Function("to_timestamp(x[, pattern])", "x as a timestamp; a number counts seconds", _to_timestamp, 1, 2),
    Function("date_format(t, pattern)", "t as text, as in date_format(t, 'yyyy-MM-dd HH:mm')", _format, 2, 2),
    Function("from_unixtime(seconds[, pattern])", "seconds since 1970 as text", _from_seconds_as_text, 1, 2),
    Function(
        "unix_timestamp(x[, pattern])", "seconds since 1970", _unix_timestamp, 1, 2, other_names=("to_unix_timestamp",)
    ),
    Function("unix_seconds(t)", "seconds since 1970", _unix(1_000_000), 1, 1),
    Function("unix_millis(t)", "milliseconds since 1970", _unix(1_000), 1, 1),
    Function("unix_micros(t)", "microseconds since 1970", _unix(1), 1, 1),
    Function("timestamp_seconds(n)", "the timestamp n seconds after 1970", _from_unix(1_000_000), 1, 1),
    Function("timestamp_millis(n)", "the timestamp n milliseconds after 1970", _from_unix(1_000), 1, 1),
    Function("timestamp_micros(n)", "the timestamp n microseconds after 1970", _from_unix(1), 1, 1),
)
