"""Sizes and durations as people write them: numbers, strings with a unit, `timedelta`."""

from __future__ import annotations

import re
from datetime import timedelta

from headgate.errors import ConfigError

_SIZES = {"b": 1, "kb": 1 << 10, "kib": 1 << 10, "k": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "m": 1 << 20,
          "gb": 1 << 30, "gib": 1 << 30, "g": 1 << 30}  # fmt: skip
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0,
          "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
          "d": 86400.0, "day": 86400.0, "days": 86400.0}  # fmt: skip
#: Seconds. Python can wait for no more than 292 years at once.
_LONGEST = 100_000 * 86400
_QUANTITY = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def _quantity(value: object, units: dict[str, float] | dict[str, int], what: str, default_unit: str) -> float:
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(f"{value!r} is not a {what}; write a number or for example {default_unit!r}")
    number, unit = match.groups()
    if unit and unit.lower() not in units:
        raise ConfigError(f"{value!r}: unknown unit {unit!r}; known: {', '.join(units)}")
    return float(number) * (units[unit.lower()] if unit else 1)


def size(value: object) -> int:
    """Bytes from an int or a string with a unit. Raises ConfigError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(_quantity(value, _SIZES, "size", "32 kb"))


def seconds(value: object) -> float:
    """Seconds from a number, a `timedelta` or a string with a unit. Raises ConfigError, also for what is not finite or
    longer than clocks and waits can take."""
    found: float
    if isinstance(value, timedelta):
        found = value.total_seconds()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        found = value
    else:
        found = _quantity(value, _TIMES, "duration", "100 ms")
    if not -_LONGEST <= found <= _LONGEST:  # nor is NaN
        raise ConfigError(f"{value!r} is impossible: a duration is finite, and at most 100000 days")
    return float(found)


def microseconds(value: object) -> int:
    """Whole microseconds, the unit of event time, from whatever `seconds` takes."""
    return round(seconds(value) * 1_000_000)
