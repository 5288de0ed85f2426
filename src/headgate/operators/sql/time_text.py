"""Times as text: Spark's own forms, and patterns such as 'yyyy-MM-dd HH:mm:ss'. Whole columns at a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql.time_kernels import UNITS, civil_days, dates, moments, nulls_of, numbers_of
from headgate.records.canonical import Bools, Int64s, as_arrow, from_raw_values, raw_values

#: One field of a pattern: a letter and how often it stands there, or ("", text) for other characters.
Field = tuple[str, int | str]

_DATE: Final = r"(?P<year>[+-]?\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_ZONE: Final = r" ?(?:Z|UTC|GMT|(?:UTC|GMT|UT)?(?P<zone>[+-]\d{1,2}(?::\d{1,2})?))?"
_SECOND: Final = rf"(?P<second>\d{{1,2}})(?:\.(?P<fraction>\d*))?{_ZONE}"
_CLOCK: Final = rf"(?P<hour>\d{{1,2}})(?::(?P<minute>\d{{1,2}})(?::{_SECOND})?)?"
_DATE_FORM: Final = rf"^\s*{_DATE}(?:[ T].*)?)?)?\s*$"
_TIMESTAMP_FORM: Final = rf"^\s*{_DATE}(?:[ T]{_CLOCK})?)?)?\s*$"

_MONTHS: Final = [
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
]
_DAYS: Final = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
#: The group of each letter that can be parsed. The regular expression of a number depends on how often its letter
#: stands there.
_NAMES: Final = {
    "y": "year",
    "M": "month",
    "d": "day",
    "H": "hour",
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "X": "zone",
}
#: The unit of a letter that tells apart times of one day.
_FINEST: Final = {"H": "hour", "h": "hour", "a": "hour", "m": "minute", "s": "second", "S": "microsecond"}
#: The ticks of a second.
_TICKS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def parse_dates(strings: pa.Array) -> pa.Array:
    """Return dates, or null for a string that is no date."""
    parts = _Parts(strings, _DATE_FORM)
    days, valid = parts.days()
    return dates(days, ~valid)


def parse_timestamps(strings: pa.Array) -> pa.Array:
    """Return timestamps, or null for a string that is no timestamp."""
    return _Parts(strings, _TIMESTAMP_FORM).timestamps()


def parse_with(strings: pa.Array, fields: tuple[Field, ...]) -> pa.Array:
    """Parse strings by a pattern (see `pattern_fields`). Return timestamps without a zone, in microseconds.

    A string of another form gives null, and so does a time that does not exist, such as 30 February or hour 25.
    """
    form = "".join(_form(letter, size) for letter, size in fields)
    return _Parts(strings, f"^{form}$").timestamps()


def pattern_fields(pattern: str, *, is_parsed: bool) -> tuple[Field, ...]:
    """Return the fields of a pattern. With `is_parsed` the pattern is for parsing, which allows fewer letters than
    formatting. Raises ValueError for a letter that has no meaning here."""
    fields: list[Field] = []
    for found in re.finditer(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|[^A-Za-z']|'", pattern):
        letters = found.group(2)
        if letters is None:
            text = found.group(1)
            fields.append(("", found.group() if text is None else text.replace("''", "'") or "'"))
            continue
        letter, size = letters[0], len(letters)
        known = {"y": (1, 2, 4), "M": (1, 2, 3, 4), "d": (1, 2), "H": (1, 2), "m": (1, 2), "s": (1, 2), "X": (3,)}
        known["S"] = tuple(range(1, 10))
        if is_parsed:
            known["M"], known["y"] = (1, 2), (1, 4)
        else:
            known |= {"E": (1, 2, 3, 4), "h": (1, 2), "a": (1,), "D": (1, 2, 3)}
        if size not in known.get(letter, ()):
            usable = " ".join(letter * count for letter, counts in known.items() for count in counts[:4])
            raise ValueError(f"{letters!r} is not allowed in a pattern; allowed are: {usable}")
        fields.append((letter, size))
    return tuple(fields)


def format_with(column: pa.Array, fields: tuple[Field, ...]) -> pa.Array:
    """Return each time as text of this pattern. If a batch has few texts, each of them is made once."""
    distinct = _distinct(column, fields)
    if distinct is None:
        return _texts(column, fields)
    times, places = distinct
    return _texts(times, fields).take(as_arrow(places))


def _distinct(column: pa.Array, fields: tuple[Field, ...]) -> tuple[pa.Array, Int64s] | None:
    """Return a time for each text, and for each row the place of its time. None: the batch has too many texts for that,
    or its times have nulls or a zone."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.tz not in (None, "UTC") or column.null_count or not len(column):
        return None
    finest = min((UNITS[_FINEST.get(letter, "day")] for letter, _ in fields), default=UNITS["day"])
    values = raw_values(column).view(np.int64)
    numbers = values // (finest * _TICKS[kind.unit] // _TICKS["us"] or 1)
    first, last = int(numbers.min()), int(numbers.max())
    if 2 * (last - first) >= len(column):
        return None
    places = numbers - first
    times = np.full(last - first + 1, values[0])
    times[places] = values
    return from_raw_values(times, None, kind), places


def _texts(column: pa.Array, fields: tuple[Field, ...]) -> pa.Array:
    texts = [
        pa.repeat(pa.scalar(str(size)), len(column)) if not letter else _formatted(column, letter, int(size))
        for letter, size in fields
    ]
    # An empty text comes first, so that there are at least two.
    joined = pc.binary_join_element_wise(pa.repeat(pa.scalar(""), len(column)), *texts, "")
    return pc.if_else(pc.is_valid(column), joined, pa.scalar(None, pa.string()))


def format_timestamps(column: pa.Array) -> pa.Array:
    """Return timestamps as text, as Spark casts them: without the zeros at the end of the fraction."""
    fields = pattern_fields("yyyy-MM-dd HH:mm:ss.SSSSSS", is_parsed=False)
    return pc.replace_substring_regex(format_with(column, fields), r"\.?0+$|$", "", max_replacements=1)


class _Parts:
    """The fields of a column of strings, which a regular expression with named groups has found."""

    def __init__(self, strings: pa.Array, form: str) -> None:
        self._groups = pc.extract_regex(strings, form)
        self._matches = ~_nulls(self._groups)
        self._rows = len(strings)

    def _text(self, name: str) -> pa.Array | None:
        names = {field.name for field in self._groups.type}
        return pc.fill_null(self._groups.field(name), "") if name in names else None

    def number(self, name: str, default: int) -> Int64s:
        text = self._text(name)
        if text is None:
            return np.full(self._rows, default, np.int64)
        text = pc.if_else(pc.or_(pc.equal(text, ""), as_arrow(~self._matches)), str(default), text)
        return numbers_of(pc.cast(text, pa.int64()))

    def days(self) -> tuple[Int64s, Bools]:
        days, exists = civil_days(self.number("year", 1970), self.number("month", 1), self.number("day", 1))
        return days, exists & self._matches

    def timestamps(self) -> pa.Array:
        days, valid = self.days()
        hour, minute, second = (self.number(name, 0) for name in ("hour", "minute", "second"))
        valid &= (hour < 24) & (minute < 60) & (second < 60)
        zone, is_zone = self._zone()
        seconds = ((days * 24 + hour) * 60 + minute) * 60 + second - zone
        values = seconds * UNITS["second"] + self._fraction()
        return pc.cast(as_arrow(values, ~(valid & is_zone)), pa.timestamp("us"))

    def _fraction(self) -> Int64s:
        text = self._text("fraction")
        if text is None:
            return np.zeros(self._rows, np.int64)
        text = pc.utf8_slice_codeunits(pc.utf8_rpad(text, 6, "0"), 0, 6)
        return numbers_of(pc.cast(text, pa.int64()))

    def _zone(self) -> tuple[Int64s, Bools]:
        """Return each zone's offset from UTC in seconds, and whether it is valid: at most 18 hours."""
        text = self._text("zone")
        if text is None:
            return np.zeros(self._rows, np.int64), np.ones(self._rows, np.bool_)
        parts = _Parts(text, r"^(?P<sign>[+-]?)(?P<hours>\d{1,2})(?::(?P<minutes>\d{1,2}))?$")
        hours, minutes = parts.number("hours", 0), parts.number("minutes", 0)
        is_west = _mask(pc.starts_with(text, "-"))
        distance = (hours * 60 + minutes) * 60
        return np.where(is_west, -distance, distance), (minutes < 60) & (distance <= 18 * 3600)


def _mask(column: pa.Array) -> Bools:
    mask: Bools = column.to_numpy(zero_copy_only=False)
    return mask


def _nulls(column: pa.Array) -> Bools:
    return _mask(pc.is_null(column))


def _form(letter: str, size: int | str) -> str:
    """Return the regular expression of one field of a pattern."""
    if not letter:
        return re.escape(str(size))
    if letter == "X":
        return r"(?:Z|(?P<zone>[+-]\d{2}:\d{2}))"
    name = _NAMES[letter]
    if size == 1 and letter != "S":
        return rf"(?P<{name}>\d{{1,{6 if letter == 'y' else 2}}})"
    return rf"(?P<{name}>\d{{{size}}})"


def _formatted(column: pa.Array, letter: str, size: int) -> pa.Array:
    if letter == "X":
        return pa.repeat(pa.scalar("Z"), len(column))
    if letter == "E":
        return _named(pc.day_of_week(column), _DAYS, size)
    if letter == "M" and size > 2:
        return _named(pc.subtract(pc.month(column), 1), _MONTHS, size)
    if letter == "a":
        return _named(pc.if_else(pc.less(pc.hour(column), 12), 0, 1), ["AM", "PM"], 4)
    if letter == "S":
        return (
            pc.utf8_slice_codeunits(_padded(_microseconds(column), 6), 0, min(size, 6))
            if size <= 6
            else _nano(column, size)
        )
    number = _READERS[letter](column)
    if letter == "y" and size == 2:
        number = pc.subtract(number, pc.multiply(pc.floor(pc.divide(pc.cast(number, pa.float64()), 100.0)), 100.0))
        number = pc.cast(number, pa.int64())
    return _padded(number, size)


def _nano(column: pa.Array, size: int) -> pa.Array:
    return pc.utf8_rpad(_padded(_microseconds(column), 6), size, "0")


def _microseconds(column: pa.Array) -> pa.Array:
    values = moments(column).astype("datetime64[us]").view(np.int64) % UNITS["second"]
    return as_arrow(values, nulls_of(column))


def _hour_of_twelve(column: pa.Array) -> pa.Array:
    hour = (numbers_of(pc.hour(column)) + 11) % 12 + 1
    return as_arrow(hour, nulls_of(column))


def _padded(number: pa.Array, size: int) -> pa.Array:
    return pc.utf8_lpad(pc.cast(number, pa.string()), size, "0")


def _named(number: pa.Array, names: list[str], size: int) -> pa.Array:
    return pa.array([name if size == 4 else name[:3] for name in names]).take(number)


_READERS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "y": pc.year,
    "M": pc.month,
    "d": pc.day,
    "D": pc.day_of_year,
    "H": pc.hour,
    "h": _hour_of_twelve,
    "m": pc.minute,
    "s": pc.second,
}
