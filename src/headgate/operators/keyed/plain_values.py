"""Converts Python values to a plain Arrow type without Arrow: numbers, times, booleans, strings and binaries.

A "taker" takes a value that has the type's usual Python class, or is a number of NumPy. It returns the Python value
that Arrow would return: rounded to the type's precision, in the type's zone. It raises Unfit for all other values, and
Arrow decides about those.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

Take = Callable[[Any], Any]

#: About how many bytes a value of each class needs in memory. A string and a decimal have no fixed size.
SIZES: Final[dict[type, int]] = {int: 32, float: 24, bool: 28, date: 32, datetime: 48, time: 40, timedelta: 40}
_NUMBERS: Final = frozenset(
    {np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64}
    | {np.float16, np.float32, np.float64, np.bool_}
)
#: The microseconds of one unit of time.
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_IN_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: The most days of a timedelta whose microseconds fit into 64 bits.
_MOST_DAYS: Final = 106_751_990
#: The most nanoseconds of a time that pandas can represent in every zone. Arrow decides about times near 64 bits.
_MOST_NANOSECONDS: Final = (1 << 63) - 2 * 86_400 * 10**9
#: Mantissa bits and the format of `struct` of the shorter float types.
_SHORT_FLOATS: Final = {pa.float16(): (11, struct.Struct("<e")), pa.float32(): (24, struct.Struct("<f"))}


class Unfit(Exception):
    """Raised for a value that Arrow must convert. Arrow then also checks whether the value fits."""


def plain_taker(kind: pa.DataType) -> tuple[type, Take] | None:
    """Return the Python class of the type's values, and the function that takes a value.

    Returns None for a type whose values Arrow must convert. The function returns None for None.
    """
    if pa.types.is_integer(kind):
        return int, _integers(kind)
    if pa.types.is_floating(kind):
        return _floats(kind)
    if pa.types.is_boolean(kind):
        return bool, _instances(bool)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str, _strings
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes, _instances(bytes)
    if pa.types.is_fixed_size_binary(kind):
        return bytes, _binaries(kind.byte_width)
    if pa.types.is_decimal(kind):
        return Decimal, _decimals(kind)
    return _times(kind)


def zone_of(kind: pa.DataType) -> tzinfo | None:
    """Return the zone of a timestamp type, or None if it has no zone or this machine does not know it.

    Arrow raises an error for each value of an unknown zone.
    """
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return None
    try:
        zone: tzinfo = pa.scalar(0, kind).as_py().tzinfo
    except Exception:  # it depends on the version of pyarrow
        return None
    return zone


def nanosecond_taker(kind: pa.DataType) -> Take | None:
    """Return the function that turns a time into a whole number of nanoseconds, or None for a type without nanoseconds.

    Python's times have microseconds. pandas has classes with nanoseconds, but making one takes long. Where pandas is
    installed, functions get such times from their rows, so they are taken too.
    """
    if getattr(kind, "unit", "") != "ns":
        return None
    python: type = timedelta
    as_duration: Callable[[Any], timedelta] = _unchanged
    if pa.types.is_timestamp(kind):
        python, as_duration = datetime, _since_epoch
    elif pa.types.is_time(kind):
        python, as_duration = time, lambda value: datetime.combine(_EPOCH, _day_time(value)) - _EPOCH

    def take(value: Any) -> Any:
        if type(value) is not python:
            return _pandas_nanoseconds(value) if isinstance(value, python) else _otherwise(take, value)
        duration = as_duration(value)
        nanoseconds = ((duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds) * 1_000
        return _sure(nanoseconds)

    return take


def _pandas_nanoseconds(value: Any) -> int:
    """Return the nanoseconds of a Timestamp, since the epoch in UTC, or of a Timedelta. Raises Unfit for others."""
    if type(value).__module__.partition(".")[0] != "pandas":
        raise Unfit
    try:
        nanoseconds: int = value.value
    except (AttributeError, OverflowError, ValueError):  # not in the range of 64 bits
        raise Unfit from None
    return _sure(nanoseconds)


def _sure(nanoseconds: int) -> int:
    """Return the nanoseconds of a time. Raises Unfit for a time that is near the limits, or is `pandas.NaT`."""
    if -_MOST_NANOSECONDS <= nanoseconds <= _MOST_NANOSECONDS:
        return nanoseconds
    raise Unfit


def _unchanged(value: timedelta) -> timedelta:
    return value


def _times(kind: pa.DataType) -> tuple[type, Take] | None:
    if pa.types.is_date(kind):
        return date, _instances(date)
    if (unit := _MICROSECONDS.get(getattr(kind, "unit", ""))) is None:
        return None
    if pa.types.is_timestamp(kind):
        moments = _datetimes(kind)
        return None if moments is None else (datetime, _whole_units(datetime, unit, moments))
    if pa.types.is_time(kind):
        return time, _whole_units(time, unit, _day_time)
    if pa.types.is_duration(kind):
        return timedelta, _whole_units(timedelta, unit, _duration)
    return None


def _otherwise(take: Take, value: Any) -> Any:
    """Take a value that is not of the usual class: None, or a number of NumPy. Raises Unfit for others."""
    if value is None:
        return None
    if type(value) in _NUMBERS:
        return take(value.item())
    raise Unfit


def _instances(python: type) -> Take:
    def take(value: Any) -> Any:
        return value if type(value) is python else _otherwise(take, value)

    return take


def _integers(kind: pa.DataType) -> Take:
    signed = pa.types.is_signed_integer(kind)
    low, end = (-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1) if signed else (0, 1 << kind.bit_width)

    def take(value: Any) -> Any:
        if type(value) is not int:
            return _otherwise(take, value)
        if low <= value < end:
            return value
        raise Unfit

    return take


def _floats(kind: pa.DataType) -> tuple[type, Take] | None:
    if kind == pa.float64():
        return float, _doubles
    if type(pa.scalar(np.float16(0), kind).as_py()) is not float:
        return None  # an older pyarrow has float16 as a number of NumPy
    bits, packed = _SHORT_FLOATS[kind]
    pack, unpack, exact = packed.pack, packed.unpack, 1 << bits

    def take(value: Any) -> Any:
        if type(value) is float or (type(value) is int and -exact <= value <= exact):
            try:
                return unpack(pack(value))[0]
            except OverflowError:
                raise Unfit from None
        return _otherwise(take, value)

    return float, take


def _doubles(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int and -(1 << 53) <= value <= 1 << 53:
        return float(value)
    return _otherwise(_doubles, value)


def _strings(value: Any) -> Any:
    if type(value) is not str:
        return _otherwise(_strings, value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # a lone surrogate
            raise Unfit from None
    return value


def _binaries(width: int) -> Take:
    def take(value: Any) -> Any:
        if type(value) is bytes and len(value) == width:
            return value
        return _otherwise(take, value)

    return take


def _decimals(kind: pa.DataType) -> Take:
    """Take decimals. A stored decimal has as many digits after the point as the type."""
    step = Decimal((0, (1,), -kind.scale))
    context = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    end = Decimal((0, (1,), kind.precision - kind.scale))

    def take(value: Any) -> Any:
        # A zero may have a sign, which Arrow does not keep.
        if type(value) is not Decimal or not value or not value.is_finite():
            return _otherwise(take, value)
        if value.same_quantum(step) and -end < value < end:
            return value
        try:
            return value.quantize(step, context=context)
        except (InvalidOperation, Inexact):
            raise Unfit from None

    return take


def _datetimes(kind: pa.DataType) -> Take | None:
    """Return the function that takes datetimes, or None for an unknown zone. A type or value without a zone is in
    UTC."""
    if kind.tz is None:
        return _naive
    if (zone := zone_of(kind)) is None:
        return None
    is_utc = kind.tz == "UTC"

    def take(value: Any) -> Any:
        if is_utc and value.tzinfo is zone and not value.fold:
            return value
        # `replace` would take five times as long, and `astimezone` keeps a time that its own zone skips
        return (_EPOCH_IN_UTC + _since_epoch(value)).astimezone(zone)

    return take


def utc_taker(kind: pa.DataType) -> Take:
    """Return the function that takes datetimes of a timestamp type with a zone, and returns them in UTC."""
    return _whole_units(datetime, _MICROSECONDS[kind.unit], lambda value: _EPOCH_IN_UTC + _since_epoch(value))


def _since_epoch(value: datetime) -> timedelta:
    if value.utcoffset() is not None:
        return value - _EPOCH_IN_UTC
    return (value if value.tzinfo is None else value.replace(tzinfo=None)) - _EPOCH


def _naive(value: datetime) -> datetime:
    """Return the datetime in UTC without a zone."""
    return value if value.tzinfo is None and not value.fold else _EPOCH + _since_epoch(value)


def _day_time(value: time) -> time:
    if value.tzinfo is not None:
        raise Unfit
    return value.replace(fold=0) if value.fold else value


def _duration(value: timedelta) -> timedelta:
    if -_MOST_DAYS <= value.days <= _MOST_DAYS:
        return value
    raise Unfit


def _whole_units(python: type, unit: int, taken: Take) -> Take:
    """Take times with no part below the type's unit of `unit` microseconds."""
    microseconds = attrgetter("microseconds" if python is timedelta else "microsecond")

    def take(value: Any) -> Any:
        if type(value) is not python:
            return _otherwise(take, value)
        if unit > 1 and microseconds(value) % unit:
            raise Unfit
        try:
            return taken(value)
        except (OverflowError, ValueError):
            raise Unfit from None

    return take
