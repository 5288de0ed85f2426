"""Restart strategies: how long each failure is waited after, and when no more."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import headgate as hg
from headgate.errors import ConfigError
from headgate.restart import ExponentialDelay, FailureRate, FixedDelay
from headgate.runtime.master.restart_delays import Restarts


def test_values_have_units() -> None:
    assert hg.restart.exponential() == ExponentialDelay(1.0, 60.0, 1.5, 3600.0)
    assert hg.restart.fixed(attempts=2, delay="500 ms") == FixedDelay(2, 0.5)
    assert hg.restart.failure_rate(3, timedelta(minutes=5), delay=0) == FailureRate(3, 300.0, 0.0)


@pytest.mark.parametrize(
    ("strategy", "arguments", "says"),
    [
        ("fixed", {"attempts": 0}, "attempts=0 is impossible"),
        ("fixed", {"attempts": 1.5}, "attempts=1.5 is impossible: it must be a whole number"),
        ("fixed", {"delay": -1}, "delay=-1 is impossible: it must be at least 0"),
        ("fixed", {"delay": "soon"}, "delay: 'soon' is not a duration"),
        ("exponential", {"initial": 0}, "initial=0 is impossible: it must be above 0"),
        ("exponential", {"max": "10 ms"}, "max='10 ms' is impossible: it must be at least initial='1 s'"),
        ("exponential", {"factor": 0.5}, "factor=0.5 is impossible: it must be a number of at least 1"),
        ("failure_rate", {"max_failures": 1, "interval": float("nan")}, "interval: nan is impossible"),
    ],
)
def test_impossible_values_are_named(strategy: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        getattr(hg.restart, strategy)(**arguments)


def test_none_is_none() -> None:
    assert Restarts(hg.restart.none()).note_failure(0.0) is None


def test_fixed_counts_all_of_a_job() -> None:
    restarts = Restarts(hg.restart.fixed(2, delay=3))
    assert [restarts.note_failure(now) for now in (0.0, 1e6, 2e6)] == [3.0, 3.0, None]


def test_exponential_begins_at_once_and_goes_to_its_maximum() -> None:
    restarts = Restarts(hg.restart.exponential(initial=1, max=4, factor=2, reset=100))
    assert [restarts.note_failure(now) for now in (1000.0, 1001.0, 1003.0, 1006.0, 1020.0)] == [0.0, 1.0, 2.0, 4.0, 4.0]
    assert restarts.note_failure(1024.0 + 99) == 4.0, "restarted at 1024"
    assert restarts.note_failure(1127.0 + 100) == 0.0, "restarted at 1127, and that went well"
    assert restarts.note_failure(1228.0) == 1.0


def test_a_failure_rate_looks_back_for_its_interval() -> None:
    restarts = Restarts(hg.restart.failure_rate(2, interval=10, delay=1))
    assert [restarts.note_failure(now) for now in (0.0, 5.0, 10.0, 15.0, 19.0)] == [1.0, 1.0, 1.0, 1.0, None]
