"""Restart strategies, for `Config(restart=...)`: whether and when a failed job restarts from its last checkpoint.

Durations are numbers (seconds), strings with a unit, or `timedelta`. An impossible duration raises ConfigError.
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
    """The strategy of `none`."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """The strategy of `fixed`. `delay` is in seconds."""

    attempts: int
    delay: float


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """The strategy of `exponential`. `initial`, `max` and `reset` are in seconds."""

    initial: float
    max: float
    factor: float
    reset: float


@dataclass(frozen=True, slots=True)
class FailureRate:
    """The strategy of `failure_rate`. `interval` and `delay` are in seconds."""

    max_failures: int
    interval: float
    delay: float


RestartStrategy: TypeAlias = NoRestart | FixedDelay | ExponentialDelay | FailureRate


def none() -> NoRestart:
    """Never restart: the first failure fails the job.

    >>> config = hg.Config(checkpoint_dir="checkpoints/", restart=hg.restart.none())
    """
    return NoRestart()


def fixed(attempts: int = 3, delay: _Duration = "1 s") -> FixedDelay:
    """Restart after each failure, `delay` later, up to `attempts` times in all.

    >>> config = hg.Config(checkpoint_dir="checkpoints/", restart=hg.restart.fixed(3, delay="10 s"))
    """
    return FixedDelay(_count("attempts", attempts), _duration("delay", delay))


def exponential(initial: _Duration = "1 s", max: _Duration = "1 min", factor: float = 1.5,
                reset: _Duration = "1 h") -> ExponentialDelay:  # fmt: skip
    """Restart after delays that grow, without a limit on the number of restarts.

    The first restart is at once. The second waits for `initial`, and each later one waits `factor` times as long as the
    one before, up to `max`. When the job has run for `reset` since its last restart, the next delay is 0 again.

    >>> strategy = hg.restart.exponential(initial="2 s", max="5 min", factor=2.0)
    >>> config = hg.Config(checkpoint_dir="checkpoints/", restart=strategy)
    """
    strategy = ExponentialDelay(
        _duration("initial", initial, above=True), _duration("max", max), factor, _duration("reset", reset)
    )
    if strategy.max < strategy.initial:
        raise ConfigError(f"max={max!r} is impossible: it must be at least initial={initial!r}")
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 <= factor < float("inf"):
        raise ConfigError(f"factor={factor!r} is impossible: it must be a number of at least 1")
    return strategy


def failure_rate(max_failures: int, interval: _Duration, delay: _Duration = "1 s") -> FailureRate:
    """Restart after each failure, `delay` later, unless there were more than `max_failures` within `interval`.

    >>> strategy = hg.restart.failure_rate(3, interval="10 min", delay="5 s")
    >>> config = hg.Config(checkpoint_dir="checkpoints/", restart=strategy)
    """
    return FailureRate(
        _count("max_failures", max_failures), _duration("interval", interval, above=True), _duration("delay", delay)
    )


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}={value!r} is impossible: it must be a whole number of at least 1")
    return value


def _duration(name: str, value: _Duration, *, above: bool = False) -> float:
    try:
        duration = seconds(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error.message}") from None
    if duration < 0 or (above and duration == 0):
        raise ConfigError(f"{name}={value!r} is impossible: it must be {'above' if above else 'at least'} 0")
    return duration
