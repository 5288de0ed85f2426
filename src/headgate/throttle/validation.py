"""Checks of the numbers that users give to a mechanism. They raise ConfigError, which names the number."""

from __future__ import annotations

import math
from datetime import timedelta
from numbers import Integral, Real
from typing import TypeAlias

from headgate.errors import ConfigError
from headgate.quantities import seconds

#: A duration as users write it: seconds, a string with a unit, or a `timedelta`.
Duration: TypeAlias = float | str | timedelta


def number_above_zero(name: str, value: object) -> None:
    if not 0 < number_or_nan(value) < math.inf:
        raise ConfigError(f"{name}={value!r} is impossible: it must be a number above 0")


def number_of_at_least_zero(name: str, value: object) -> None:
    if not 0 <= number_or_nan(value) < math.inf:
        raise ConfigError(f"{name}={value!r} is impossible: it must be a number of at least 0")


def whole_number(name: str, value: object, *, least: int) -> None:
    if not isinstance(value, Integral) or not number_or_nan(value) >= least:
        raise ConfigError(f"{name}={value!r} is impossible: it must be a whole number of at least {least}")


def duration(name: str, value: Duration) -> float:
    """Return the duration in seconds. It is at least 0."""
    if (length := _seconds(name, value)) < 0:
        raise ConfigError(f"{name}={value!r} is impossible: it must be at least 0")
    return length


def duration_above_zero(name: str, value: Duration) -> float:
    """Return the duration in seconds. It is above 0, so that what repeats after it leaves time for others."""
    if (length := _seconds(name, value)) <= 0:
        raise ConfigError(f"{name}={value!r} is impossible: it must be above 0")
    return length


def _seconds(name: str, value: Duration) -> float:
    try:
        return seconds(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}") from None


def rising_fractions(*, low: object, high: object) -> None:
    if not 0 < number_or_nan(low) < number_or_nan(high) <= 1:
        raise ConfigError(
            f"low={low!r} and high={high!r} are impossible: they must be fractions above 0 and up to 1, low below high"
        )


def fraction(name: str, value: object) -> None:
    if not 0 < number_or_nan(value) <= 1:
        raise ConfigError(f"{name}={value!r} is impossible: it must be a fraction above 0 and up to 1")


def number_or_nan(value: object) -> float:
    """Return NaN for what is no number, and for True and False. NaN is neither above nor below any number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
