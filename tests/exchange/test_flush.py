"""The share of time that flushing may take."""

from __future__ import annotations

import pytest

from headgate.exchange.flush import BUSY_SHARE, IDLE_SHARE, MAX_INTERVAL, PROMPT_INTERVAL, AdaptiveFlush, PromptFlush


def test_the_first_flush_is_at_once() -> None:
    assert AdaptiveFlush().earliest(is_idle=False) == float("-inf")


@pytest.mark.parametrize(("is_idle", "share"), [(False, BUSY_SHARE), (True, IDLE_SHARE)])
@pytest.mark.parametrize("cost", [1e-5, 1e-4, 1e-3])
def test_flushing_takes_its_share_of_the_time_whatever_it_costs(is_idle: bool, share: float, cost: float) -> None:
    flush, now, flushes = AdaptiveFlush(), 100.0, 50
    for _ in range(flushes):
        now = max(now, flush.earliest(is_idle=is_idle))
        flush.flushed(now, now + cost)
        now += cost
    assert flushes * cost / (flush.earliest(is_idle=is_idle) - 100.0) == pytest.approx(share)


def test_an_idle_task_flushes_sooner_than_a_busy_one() -> None:
    flush = AdaptiveFlush()
    flush.flushed(10.0, 10.001)
    assert flush.earliest(is_idle=True) < 10.002 < 10.019 < flush.earliest(is_idle=False)


def test_channels_that_were_not_starved_are_looked_at_again() -> None:
    flush = AdaptiveFlush()
    flush.flushed(10.0, 10.001)
    assert flush.earliest(is_idle=False) < flush.latest == 10.001 + MAX_INTERVAL


def test_a_flush_that_was_held_up_does_not_hold_up_the_next_for_long() -> None:
    flush = AdaptiveFlush()
    flush.flushed(10.0, 12.0)
    assert flush.earliest(is_idle=False) == 12.0 + MAX_INTERVAL


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_prompt_flushing_takes_at_most_its_share(share: float) -> None:
    flush = PromptFlush(share)
    assert flush.earliest == float("-inf")
    flush.flushed(10.0, 10.0001)
    assert flush.earliest == pytest.approx(10.0001 + 0.0001 * (1 / share - 1))


def test_prompt_flushing_waits_a_millisecond_at_most() -> None:
    flush = PromptFlush(0.25)
    flush.flushed(10.0, 12.0)
    assert flush.earliest == 12.0 + PROMPT_INTERVAL
