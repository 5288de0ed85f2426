"""FixedRate: whole batches pass, the next one pays, and idle time is saved up to a bound."""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.throttle.fixed_rate import FixedRate
from headgate.throttle.mechanism import SourcePolicy


def read_all(policy: SourcePolicy, now: float, batches: list[int]) -> list[float]:
    """Read the batches as early as the policy allows. Return the time of each read, and of the one after them."""
    times = []
    for rows in batches:
        now = max(now, policy.permit(now))
        times.append(now)
        policy.emitted(now, rows)
    return [*times, max(now, policy.permit(now))]


def test_a_batch_passes_whole_and_the_next_one_pays() -> None:
    policy = FixedRate(100).source_policy(now=5.0)
    assert policy.permit(5.0) <= 5.0
    policy.emitted(5.0, 300)
    assert policy.permit(5.0) == policy.permit(7.9) == 8.0
    policy.emitted(8.0, 100)
    assert policy.permit(8.0) == 9.0


def test_the_bucket_is_empty_at_first() -> None:
    assert read_all(FixedRate(10).source_policy(now=0.0), 0.0, [1, 1, 1]) == pytest.approx([0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize(("burst", "saved"), [(1.0, 10), (0, 0), ("2 s", 20), (timedelta(milliseconds=500), 5)])
def test_idle_time_is_saved_up_to_the_burst(burst: Any, saved: int) -> None:
    policy = FixedRate(10, burst).source_policy(now=0.0)
    times = read_all(policy, 60.0, [1] * (saved + 3))
    assert times[: saved + 1] == [60.0] * (saved + 1)  # the last of them makes a debt
    assert times[saved + 1 :] == pytest.approx([60.1, 60.2, 60.3])


def test_less_idle_time_than_the_burst_is_saved_as_it_is() -> None:
    policy = FixedRate(10).source_policy(now=0.0)
    policy.emitted(0.25, 2)
    assert policy.permit(0.25) == 0.25
    policy.emitted(0.25, 1)
    assert policy.permit(0.25) == pytest.approx(0.3)


def test_a_read_without_rows_costs_nothing() -> None:
    policy = FixedRate(10).source_policy(now=0.0)
    policy.emitted(0.0, 0)
    assert policy.permit(0.0) == 0.0


def test_the_source_may_read_at_the_very_time_that_permit_returned() -> None:
    """Otherwise a task would wait for a time that has come, again and again."""
    policy = FixedRate(3).source_policy(now=0.1)
    now = 0.1
    for rows in (1, 7, 2, 1000):
        policy.emitted(now, rows)
        now = policy.permit(now)
        assert policy.permit(now) <= now


@given(
    rate=st.integers(1, 10_000),
    burst=st.sampled_from([0.0, 0.25, 1.0]),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 500)), min_size=1, max_size=50),
)
def test_rows_never_exceed_rate_and_burst(rate: int, burst: float, steps: list[tuple[int, int]]) -> None:
    """Before a batch begins, all earlier rows fit into the time since the start plus the burst."""
    policy = FixedRate(rate, burst).source_policy(now=0.0)
    now, total = 0.0, 0
    for pause, rows in steps:
        now = max(now + pause / 4, policy.permit(now))
        assert total <= rate * (now + burst) * (1 + 1e-9)
        policy.emitted(now, rows)
        total += rows


@given(rate=st.integers(1, 10_000), batches=st.lists(st.integers(1, 500), min_size=1, max_size=30))
def test_a_source_that_always_has_rows_reads_at_exactly_the_rate(rate: int, batches: list[int]) -> None:
    times = read_all(FixedRate(rate).source_policy(now=0.0), 0.0, batches)
    assert times[-1] == pytest.approx(float(Fraction(sum(batches), rate)))


@given(batches=st.lists(st.integers(1, 60), min_size=1, max_size=20), pauses=st.lists(st.integers(0, 8)))
def test_batches_take_as_long_as_their_rows_one_by_one(batches: list[int], pauses: list[int]) -> None:
    """Spark's receiver asks for each row. For the batch after this one it makes no difference."""
    whole, single = (FixedRate(16).source_policy(now=0.0) for _ in range(2))
    now = 0.0
    for rows, pause in zip(batches, [*pauses, *[0] * len(batches)], strict=False):
        now = max(now, whole.permit(now)) + pause / 4
        whole.emitted(now, rows)
        assert read_all(single, now, [1] * rows)[-1] == pytest.approx(max(now, whole.permit(now)))


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan, True, "10", None, 1j])
def test_an_impossible_rate_is_refused(rate: Any) -> None:
    with pytest.raises(ConfigError, match=r"^rows_per_s=.* is impossible: it must be a number above 0$"):
        FixedRate(rate)


@pytest.mark.parametrize(
    ("burst", "says"),
    [
        (-1, "burst=-1 is impossible: it must be at least 0"),
        ("10 apples", "burst: '10 apples': unknown unit 'apples'"),
        (math.inf, "burst: inf is impossible"),
    ],
)
def test_an_impossible_burst_is_refused(burst: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        FixedRate(1, burst)


def test_it_has_no_queue_policy() -> None:
    assert FixedRate(1).queue_policy() is None
