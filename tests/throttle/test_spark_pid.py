"""SparkPid: the controller, the limiter of a source, and both with batches that take time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.throttle.batch_schedule import BatchSchedule, CompletedBatch
from headgate.throttle.mechanism import Scope, SourcePolicy
from headgate.throttle.spark_pid import PidSource, RateUpdate, SparkPid
from headgate.throttle.token_bucket import TokenBucket
from tests.spark_session import SharedSpark
from tests.throttle.spark_classes import rate_limits

READER, OTHER = (0, 0), (0, 1)


# --- batches


def test_a_batch_waits_for_the_one_before() -> None:
    schedule = BatchSchedule(interval=2.0, start=100.0)
    assert (schedule.next_release, schedule.release(102.0)) == (102.0, 0)
    assert schedule.next_release == float("inf")
    assert schedule.completed(107.0) == CompletedBatch(0, 107.0, processing=5.0, scheduling=0.0)
    assert (schedule.next_release, schedule.release(107.0)) == (104.0, 1)
    assert schedule.completed(107.5) == CompletedBatch(1, 107.5, processing=0.5, scheduling=3.0)
    schedule.release(107.5)
    assert schedule.completed(108.0).scheduling == 1.5  # it catches up
    assert schedule.next_release == 108.0


# --- the limiter of a source: Spark's RateLimiterSuite


@pytest.mark.parametrize(
    ("max_rate", "update", "rate"),
    [(None, 105, 105), (110, 105, 105), (100, 105, 100), (100, 0, 100), (None, 0, 2**63)],
)
def test_an_update_sets_the_rate_up_to_the_largest(max_rate: int | None, update: int, rate: int) -> None:
    policy = PidSource(None, max_rate, now=0.0)
    policy.on_signal(0.0, RateUpdate((READER,), update))
    assert policy.rows_per_s == rate


@pytest.mark.parametrize(("initial", "max_rate", "rate"), [(50, None, 50), (50, 20, 20), (None, 20, 20), (50, 90, 50)])
def test_the_first_rate(initial: int | None, max_rate: int | None, rate: int) -> None:
    policy = SparkPid(batch_interval=1, initial_rate=initial, max_rate=max_rate).pid_source(now=0.0)
    assert policy.rows_per_s == rate
    policy.emitted(0.0, 100)
    assert policy.permit(0.0) == pytest.approx(100 / rate)


def test_without_a_first_rate_a_source_reads_as_fast_as_it_can() -> None:
    policy: SourcePolicy = SparkPid(batch_interval=1).pid_source(now=0.0)
    for _ in range(1000):
        policy.emitted(0.0, 1_000_000)
    assert policy.permit(0.0) < 1e-6


def test_a_debt_is_paid_at_the_old_rate() -> None:
    policy = PidSource(100, None, now=0.0)
    policy.emitted(0.0, 200)
    policy.on_signal(0.5, RateUpdate((READER,), 1))
    assert policy.permit(0.5) == 2.0
    policy.emitted(2.0, 3)
    assert policy.permit(2.0) == 5.0


def test_saved_rows_change_with_the_rate() -> None:
    """After an idle second, the burst of one second is there at the new rate, too."""
    policy = PidSource(100, None, now=5.0)
    policy.on_signal(6.0, RateUpdate((READER,), 10))
    policy.emitted(6.0, 10)
    assert policy.permit(6.0) == 6.0
    policy.emitted(6.0, 1)
    assert policy.permit(6.0) == pytest.approx(6.1)


def test_half_of_the_burst_stays_half_of_it() -> None:
    policy = PidSource(100, None, now=5.0)
    policy.on_signal(5.5, RateUpdate((READER,), 10))
    policy.emitted(5.5, 6)
    assert policy.permit(5.5) == pytest.approx(5.6)


# --- the controller


def test_a_completed_batch_becomes_an_update_of_whole_rows() -> None:
    controller = SparkPid(batch_interval=1).rate_controller(READER)
    assert controller.completed(CompletedBatch(0, 1.0, 0.5, 0.0), {READER: 100}) is None
    update = controller.completed(CompletedBatch(1, 2.0, 0.3, 0.0), {READER: 100})
    assert update == RateUpdate((READER,), 333)
    assert update.scope is Scope.TASKS


def test_a_batch_without_the_subtask_counts_for_nothing() -> None:
    controller = SparkPid(batch_interval=1).rate_controller(READER)
    assert controller.completed(CompletedBatch(0, 1.0, 0.5, 0.0), {OTHER: 100}) is None
    assert controller.completed(CompletedBatch(1, 2.0, 0.5, 0.0), {READER: 100}) is None  # its first
    assert controller.completed(CompletedBatch(2, 3.0, 0.5, 0.0), {READER: 100, OTHER: 9}) == RateUpdate((READER,), 200)


def test_a_restarted_job_has_forgotten_the_rate() -> None:
    pid = SparkPid(batch_interval=1, initial_rate=7)
    before = pid.pid_source(now=0.0)
    before.on_signal(1.0, RateUpdate((READER,), 500))
    assert pid.pid_source(now=2.0).rows_per_s == 7


# --- both, with a job that processes a fixed number of rows per second


def run(pid: SparkPid, offered: int, capacity: list[float], overhead: float = 0.0) -> list[tuple[int, float]]:
    """Return the rows and the scheduling delay of each batch. A batch takes `overhead` and its rows' share of capacity.

    Rows come in chunks of `offered / 100`, as soon as the policy permits, but no faster than `offered` per second.
    """
    source, controller = pid.pid_source(now=0.0), pid.rate_controller(READER)
    schedule = BatchSchedule(1.0, 0.0)
    now, chunk, batches = 0.0, offered // 100, []
    updates: list[tuple[float, RateUpdate]] = []
    end = 0.0
    for number, speed in enumerate(capacity):
        rows = 0
        while (now := max(now, source.permit(now))) < number + 1:
            while updates and updates[0][0] <= now:
                source.on_signal(*updates.pop(0))
            rows += chunk
            source.emitted(now, chunk)
            now += 0.01
        release = max(schedule.next_release, end)
        schedule.release(release)
        end = release + overhead + rows / speed
        completed = schedule.completed(end)
        if update := controller.completed(completed, {READER: rows}):
            updates.append((end, update))
        batches.append((rows, completed.scheduling))
    return batches


def test_it_finds_the_rate_that_the_job_can_process() -> None:
    batches = run(SparkPid(batch_interval=1, initial_rate=500), offered=5000, capacity=[1000.0] * 60)
    assert [rows for rows, _ in batches[40:]] == pytest.approx([1000] * 20, rel=0.1)
    assert max(delay for _, delay in batches[40:]) < 1


def test_the_first_batches_flood_a_job_without_a_first_rate() -> None:
    """Spark's known weakness: `initial_rate` exists for this. The rate then falls to its least."""
    batches = run(SparkPid(batch_interval=1), offered=20_000, capacity=[1000.0] * 60)
    assert [rows for rows, _ in batches[:2]] == pytest.approx([20_000] * 2, rel=0.02)
    assert max(delay for _, delay in batches) > 30
    assert min(rows for rows, _ in batches) <= 200  # one chunk: the least rate is 100 rows per second


def test_small_batches_underestimate_what_the_job_can_process() -> None:
    """The fixed cost of a batch counts as processing time, so a small rate stays small for long."""
    pid = SparkPid(batch_interval=1, initial_rate=10, min_rate=1)
    batches = run(pid, offered=5000, capacity=[10_000.0] * 30, overhead=0.8)
    assert batches[10][0] < 1000  # it could process 2000


# --- Guava's own class


def random_steps(chance: random.Random) -> tuple[int, list[tuple[str, int, int]]]:
    rate, now, steps = chance.choice([1, 100, 12_345]), 0, []
    for _ in range(chance.randrange(1, 16)):
        now += chance.choice([0, 1, 1000, chance.randrange(5_000_000)])
        if chance.random() < 0.2:
            steps.append(("rate", now, chance.choice([1, 77, 5000])))
        else:
            steps.append(("take", now, chance.choice([1, 10, chance.randrange(1, 30_000)])))
    return rate, steps


def test_the_limiter_agrees_with_guavas_class(shared_spark: SharedSpark) -> None:
    """Guava rounds each debt down to whole microseconds; here it has a fraction."""
    chance = random.Random(21)
    sequences = [random_steps(chance) for _ in range(2000)]
    lines = [" ".join(map(str, [rate, *(each for step in steps for each in step)])) for rate, steps in sequences]
    for (rate, steps), expected in zip(sequences, rate_limits(shared_spark.on("local[2]"), lines), strict=True):
        bucket, ours = TokenBucket(rate, 1.0, now=0.0), []
        for what, now, value in steps:
            (bucket.emitted if what == "take" else bucket.set_rate)(now / 1e6, value)
            ours.append(bucket.permit(now / 1e6) * 1e6)
        assert ours == pytest.approx(expected, abs=2 * len(steps))


def test_the_shortest_interval_is_a_millisecond() -> None:
    assert SparkPid(batch_interval="1 ms").rate_controller(READER)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"batch_interval": 1, "storage": []}, r'storage=\[\] is unknown: it must be "memory" or'),
        ({"batch_interval": 0}, "batch_interval=0 is impossible: it must be at least 1 ms"),
        ({"batch_interval": "soon"}, "batch_interval: 'soon' is not a duration"),
        ({"batch_interval": 1, "min_rate": 0}, "min_rate=0 is impossible: it must be a number above 0"),
        ({"batch_interval": 1, "min_rate": None}, "min_rate=None is impossible"),
        ({"batch_interval": 1, "initial_rate": 0}, "initial_rate=0 is impossible"),
        ({"batch_interval": 1, "max_rate": -5}, "max_rate=-5 is impossible"),
        ({"batch_interval": 1, "storage": "disk"}, "storage='disk' is unknown"),
        ({"batch_interval": 1, "integral": -1}, "integral=-1 is impossible: it must be a number of at least 0"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        SparkPid(**wrong)
