"""PidRateEstimator: the truths of Spark's own suite, and Spark's own class on random sequences."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headgate.errors import ConfigError
from headgate.throttle.pid_rate_estimator import PidRateEstimator
from tests.spark_session import SharedSpark
from tests.throttle.spark_classes import pid_estimates

INTERVAL = 20


def estimator(proportional: float, integral: float, derivative: float, min_rate: float) -> PidRateEstimator:
    return PidRateEstimator(
        INTERVAL, proportional=proportional, integral=integral, derivative=derivative, min_rate=min_rate
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"interval_ms": 0}, "interval_ms=0 is impossible: it must be a whole number of at least 1"),
        ({"proportional": -1}, "proportional=-1 is impossible: it must be a number of at least 0"),
        ({"integral": -1.0}, "integral=-1.0 is impossible"),
        ({"derivative": -1e-9}, "derivative=-1e-09 is impossible"),
        ({"min_rate": 0}, "min_rate=0 is impossible: it must be a number above 0"),
        ({"min_rate": -10}, "min_rate=-10 is impossible"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        PidRateEstimator(**{"interval_ms": INTERVAL, **wrong})


def test_the_first_batch_gives_no_rate_and_the_second_does() -> None:
    pid = estimator(1, 0, 0, 10)
    assert pid.compute(0, 10, 10, 0) is None
    assert pid.compute(10, 10, 10, 0) == 1000.0


@pytest.mark.parametrize(
    "ignored",
    [(10, 10, 10, 0), (5, 10, 10, 0), (20, 0, 10, 0), (20, -10, 10, 0), (20, 10, 0, 0), (20, 10, -10, 0)],
    ids=["same time", "earlier", "no rows", "negative rows", "no time", "negative time"],
)
def test_a_batch_that_is_ignored_changes_nothing(ignored: tuple[int, int, int, int]) -> None:
    pid, other = (estimator(0.5, 0.2, 0.1, 10) for _ in range(2))
    for each in (pid, other):
        each.compute(0, 10, 10, 0)
        each.compute(10, 20, 10, 0)
    assert pid.compute(*ignored) is None
    assert pid.compute(30, 30, 10, 5) == other.compute(30, 30, 10, 5)


def test_the_rate_does_not_fall_below_its_least() -> None:
    pid = estimator(1, 1, 0, 5)
    rates = [pid.compute(INTERVAL * step, 1, 20, 100) for step in range(50)]
    assert rates == [None] + [5.0] * 49


def test_the_rate_follows_batches_that_are_processed_faster() -> None:
    pid = estimator(1, 1, 0, 10)
    rates = [pid.compute(INTERVAL * step, (step + 1) * 20, 20, 0) for step in range(50)]
    assert rates == [None] + [(step + 1) * 1000.0 for step in range(1, 50)]


def test_the_rate_follows_batches_that_are_processed_more_slowly() -> None:
    pid = estimator(1, 1, 0, 10)
    rates = [pid.compute(INTERVAL * step, (50 - step) * 20, 20, 0) for step in range(50)]
    assert rates == [None] + [(50 - step) * 1000.0 for step in range(1, 50)]


def test_a_batch_that_waited_gives_less_than_its_processing_rate() -> None:
    chance = random.Random(1)
    pid = estimator(1, 0.01, 0, 10)
    assert pid.compute(0, 10, 20, 0) is None
    for step in range(1, 50):
        rows, waited = chance.randrange(1, 1000), chance.randrange(1, 19)
        rate = pid.compute(INTERVAL * step, rows, 20, waited)
        assert rate is not None
        assert 10 <= rate < rows / 20 * 1000


def test_each_gain_has_its_part() -> None:
    pid = PidRateEstimator(1000, proportional=0.5, integral=0.2, derivative=0.1, min_rate=1)
    pid.compute(1000, 1000, 1000, 0)
    assert pid.compute(3000, 500, 1000, 500) == 1000 - 0.5 * 500 - 0.2 * 250 - 0.1 * 250
    assert pid.compute(4000, 500, 1000, 0) == pytest.approx(675 - 0.5 * 175 - 0.1 * (175 - 500))


def test_with_the_default_gains_the_last_rate_has_no_influence() -> None:
    rates = []
    for rows in (1, 100_000):
        pid = PidRateEstimator(1000)
        pid.compute(0, rows, 1000, 0)
        rates.append(pid.compute(1000, 5000, 1000, 1000))
    assert rates == [4000.0, 4000.0]


@pytest.mark.parametrize(("scheduling", "rate"), [(4999, pytest.approx(1.0)), (5000, 0.5), (50_000, 0.5)])
def test_a_delay_of_five_intervals_lets_the_rate_fall_to_its_least(scheduling: int, rate: Any) -> None:
    pid = PidRateEstimator(1000, min_rate=0.5)
    pid.compute(0, 5000, 1000, 0)
    assert pid.compute(1000, 5000, 1000, scheduling) == rate


def test_a_source_without_rows_keeps_its_rate() -> None:
    pid = PidRateEstimator(1000)
    pid.compute(0, 500, 1000, 0)
    assert pid.compute(1000, 500, 1000, 0) == 500.0
    assert [pid.compute(1000 * step, 0, 10, 0) for step in range(2, 100)] == [None] * 98


# --- Spark's own class


def random_sequence(chance: random.Random) -> tuple[list[float], list[tuple[int, int, int, int]]]:
    """Return the five numbers of the constructor, and the calls. Some of the calls are to be ignored."""
    interval = chance.choice([1, 20, 500, 1000, 10_000])
    gains = [chance.choice([0.0, 1.0, 0.2, chance.uniform(0, 2)]) for _ in range(3)]
    time, calls = chance.choice([0, 1_700_000_000_000]), []
    for _ in range(chance.randrange(1, 16)):
        time += chance.choice([0, 1, interval, chance.randrange(-interval, 3 * interval)])
        rows = chance.choice([0, -1, 1, chance.randrange(1000), chance.randrange(10_000_000)])
        processing = chance.choice([0, -1, 1, interval, chance.randrange(1, 5 * interval)])
        scheduling = chance.choice([0, 0, 1, chance.randrange(10 * interval)])
        calls.append((time, rows, processing, scheduling))
    return [interval, *gains, chance.choice([0.5, 100.0, chance.uniform(1, 1e5)])], calls


def test_it_agrees_with_sparks_class_on_10000_random_sequences(shared_spark: SharedSpark) -> None:
    chance = random.Random(20)
    sequences = [random_sequence(chance) for _ in range(10_000)]
    lines = [" ".join(map(str, [*numbers, *(each for call in calls for each in call)])) for numbers, calls in sequences]
    spark: SparkSession = shared_spark.on("local[2]")
    answers = pid_estimates(spark, lines)
    given = 0
    for (numbers, calls), expected in zip(sequences, answers, strict=True):
        interval, proportional, integral, derivative, min_rate = numbers
        pid = PidRateEstimator(
            int(interval), proportional=proportional, integral=integral, derivative=derivative, min_rate=min_rate
        )
        assert [pid.compute(*call) for call in calls] == expected
        given += sum(rate is not None for rate in expected)
    assert given > 10_000
