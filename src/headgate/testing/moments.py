"""Moments of event time and of the clock, as tests write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from headgate.errors import ConfigError
from headgate.operators.operator import MAX_TIME, MIN_TIME
from headgate.quantities import seconds

#: A datetime (UTC, if it has no zone), or microseconds since 1970-01-01T00:00Z.
Moment: TypeAlias = datetime | int

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def at(since: float | str | timedelta) -> datetime:
    """Return a time that is easy to write in tests: `at("15 min")` is 15 minutes after 1970-01-01T00:00Z.

    The time is a datetime in UTC, for columns of type `pa.timestamp(..., "UTC")`. `at("1 h") + timedelta(seconds=1)` is
    one second after `at("1 h")`. `since` is a number of seconds, a string with a unit, or a `timedelta`. Raises
    ConfigError for anything else.

    >>> hg.testing.at("90 s").isoformat()
    '1970-01-01T00:01:30+00:00'
    """
    return _EPOCH + timedelta(seconds=seconds(since))


def in_microseconds(what: str, moment: object) -> int:
    """Return the moment in microseconds since 1970. Raises ConfigError, whose message begins with the call `what`."""
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(moment, int) and not isinstance(moment, bool) and MIN_TIME < moment < MAX_TIME:
        return moment
    raise ConfigError(
        f"{what}: {moment!r} is not a moment; give a datetime, microseconds since 1970, or testing.at('15 min')"
    )


def shown_moment(moment: int) -> str:
    """Return the moment as text for an error message."""
    try:
        return f"{_EPOCH + timedelta(microseconds=moment):%Y-%m-%dT%H:%M:%S.%fZ}"
    except OverflowError:
        return f"{moment} us"
