"""Read sizes and durations as users write them: numbers, strings with a unit, `timedelta`."""

from __future__ import annotations

import re
from datetime import timedelta

from headgate.errors import ConfigError

_SIZES = {"b": 1, "kb": 1 << 10, "kib": 1 << 10, "k": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "m": 1 << 20,
          "gb": 1 << 30, "gib": 1 << 30, "g": 1 << 30}  # fmt: skip
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0,
          "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
          "d": 86400.0, "day": 86400.0, "days": 86400.0}  # fmt: skip
#: The longest duration, in seconds. Python cannot wait for more than 292 years at once.
_LONGEST = 100_000 * 86400
#: The largest size, in bytes: 1 EiB. It fits into 64 bits, with room to add and multiply.
_LARGEST = 1 << 60
_QUANTITY = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _quantity(value: object, units: dict[str, float] | dict[str, int], kind: str, example: str) -> float:
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(f"{value!r} is not a {kind}; write a number or for example {example!r}")
    number, unit = match.groups()
    if unit and unit.lower() not in units:
        raise ConfigError(f"{value!r}: unknown unit {unit!r}; known: {', '.join(units)}")
    return float(number) * (units[unit.lower()] if unit else 1)


def size(value: object) -> int:
    """Return bytes from an int or from a string with a unit. 1 kb is 1024 bytes.

    Raises ConfigError for other values, and for a size of more than 1 EiB.

    >>> size("32 kb")
    32768
    """
    number: float
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        number = _quantity(value, _SIZES, "size", "32 kb")
    if not -_LARGEST <= number <= _LARGEST:  # without the value: it may have too many digits to be shown
        raise ConfigError(f"the value is impossible: a size is at most {_LARGEST} bytes (1 EiB)")
    return int(number)


def seconds(value: object) -> float:
    """Return seconds from a number, a `timedelta` or a string with a unit.

    Raises ConfigError for other values, and for a duration of more than 100,000 days.

    >>> seconds("100 ms")
    0.1
    """
    duration: float
    if isinstance(value, timedelta):
        duration = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        duration = value
    else:
        duration = _quantity(value, _TIMES, "duration", "100 ms")
    if not -_LONGEST <= duration <= _LONGEST:  # also refuses NaN, for which both comparisons are false
        raise ConfigError(f"{value!r} is impossible: a duration is finite, and at most 100000 days")
    return float(duration)


def microseconds(value: object) -> int:
    """Return whole microseconds, the unit of event time, from a value that `seconds` accepts. Raises ConfigError."""
    return round(seconds(value) * 1_000_000)


def duration_text(time: int) -> str:
    """Return whole microseconds as text, in the largest unit that needs no fraction."""
    units = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}
    unit = next(unit for unit, size in units.items() if time % size == 0)
    return f"{time // units[unit]} {unit}"
