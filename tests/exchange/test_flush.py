"""The share of time that adaptive flushing may take."""

from __future__ import annotations

import pytest

from headgate.exchange.flush import BUSY_SHARE, MAX_INTERVAL, WAITING_SHARE, AdaptiveFlush


def test_the_first_flush_is_at_once() -> None:
    assert AdaptiveFlush().earliest(waiting=False) == float("-inf")


@pytest.mark.parametrize(("waiting", "share"), [(False, BUSY_SHARE), (True, WAITING_SHARE)])
@pytest.mark.parametrize("cost", [1e-5, 1e-3, 4e-3])
def test_flushing_takes_its_share_of_the_time_whatever_it_costs(waiting: bool, share: float, cost: float) -> None:
    flush, now, flushes = AdaptiveFlush(), 100.0, 50
    for _ in range(flushes):
        now = max(now, flush.earliest(waiting=waiting))
        flush.flushed(now, now + cost)
        now += cost
    assert flushes * cost / (flush.earliest(waiting=waiting) - 100.0) == pytest.approx(share)


def test_a_task_that_would_wait_anyway_flushes_sooner_than_a_busy_one() -> None:
    flush = AdaptiveFlush()
    flush.flushed(10.0, 10.001)
    assert flush.earliest(waiting=True) < 10.002 < 10.019 < flush.earliest(waiting=False)


def test_a_flush_that_was_held_up_does_not_hold_up_the_next_for_long() -> None:
    flush = AdaptiveFlush()
    flush.flushed(10.0, 12.0)
    assert flush.earliest(waiting=False) == 12.0 + MAX_INTERVAL
