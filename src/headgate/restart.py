"""Whether, and after how long, a job that failed is restarted from its last checkpoint: `Config(restart=...)`.

Durations are numbers (seconds), strings with a unit or `timedelta`. An impossible one raises ConfigError.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from headgate.errors import ConfigError
from headgate.quantities import seconds

__all__ = ["exponential", "failure_rate", "fixed", "none"]

_Duration: TypeAlias = float | str | timedelta


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure fails the job."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """So many restarts in all, each after the same delay (seconds)."""

    attempts: int
    delay: float


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """The first restart at once, the next after `initial` seconds, then `factor` times longer each up to `max`. A job
    that has run for `reset` seconds since its restart begins again."""

    initial: float
    max: float
    factor: float
    reset: float


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restarts `delay` seconds after each failure, but not with more than `max_failures` within `interval` seconds."""

    max_failures: int
    interval: float
    delay: float


RestartStrategy: TypeAlias = NoRestart | FixedDelay | ExponentialDelay | FailureRate


def none() -> NoRestart:
    """The first failure fails the job."""
    return NoRestart()


def fixed(attempts: int = 3, delay: _Duration = "1 s") -> FixedDelay:
    """Restart up to `attempts` times in all, each `delay` after the failure."""
    return FixedDelay(_count("attempts", attempts), _duration("delay", delay))


def exponential(initial: _Duration = "1 s", max: _Duration = "1 min", factor: float = 1.5,
                reset: _Duration = "1 h") -> ExponentialDelay:  # fmt: skip
    """Restart at once, then after `initial`, then `factor` times longer each time up to `max`, without an end. When
    the job has run for `reset` since its last restart, the next one is at once again."""
    made = ExponentialDelay(
        _duration("initial", initial, above=True), _duration("max", max), factor, _duration("reset", reset)
    )
    if made.max < made.initial:
        raise ConfigError(f"max={max!r} is impossible: it must be at least initial={initial!r}")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor < float("inf"):
        raise ConfigError(f"factor={factor!r} is impossible: it must be a number from 1 on")
    return made


def failure_rate(max_failures: int, interval: _Duration, delay: _Duration = "1 s") -> FailureRate:
    """Restart `delay` after each failure, unless there were more than `max_failures` within the last `interval`."""
    return FailureRate(
        _count("max_failures", max_failures), _duration("interval", interval, above=True), _duration("delay", delay)
    )


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r} is impossible: it must be a whole number from 1 on")
    return value


def _duration(name: str, value: _Duration, *, above: bool = False) -> float:
    try:
        found = seconds(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}") from None
    if found < 0 or (above and found == 0):
        raise ConfigError(f"{name}={value!r} is impossible: it must be {'above' if above else 'at least'} 0")
    return found
