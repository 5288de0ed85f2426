"""Where a task's time goes."""

from __future__ import annotations

from collections.abc import Callable

from headgate.runtime.task.time_account import TASK, TimeAccount, Wait, time_account


class Now:
    """A clock that a test sets. With `interrupt`, the next reading is followed by that call, as if the thread that read
    it had been preempted by another."""

    def __init__(self) -> None:
        self.seconds = 10.0
        self.interrupt: Callable[[], None] | None = None

    def __call__(self) -> float:
        seconds, interrupt = self.seconds, self.interrupt
        self.interrupt = None
        if interrupt is not None:
            interrupt()
        return seconds


def spent(times: TimeAccount) -> dict[int, float]:
    """Return the seconds of the buckets that have any."""
    return {bucket: seconds for bucket, seconds in enumerate(times.seconds()) if seconds}


def test_each_bucket_has_its_own_seconds_and_the_current_one_counts_until_now() -> None:
    now = Now()
    times = TimeAccount(now)
    sums = times.add_bucket()
    now.seconds = 11.0
    assert times.switch(Wait.OUTPUT_SOFT) == TASK
    now.seconds = 13.0
    assert spent(times) == {TASK: 1.0, Wait.OUTPUT_SOFT: 2.0}
    assert times.switch(sums) == Wait.OUTPUT_SOFT
    now.seconds = 13.5
    assert times.switch(Wait.OUTPUT_SOFT) == sums
    now.seconds = 14.5
    assert spent(times) == {TASK: 1.0, Wait.OUTPUT_SOFT: 3.0, sums: 0.5}
    assert sum(times.seconds()) == 4.5


def test_after_a_reset_the_current_bucket_counts_from_then() -> None:
    now = Now()
    times = TimeAccount(now)
    now.seconds = 12.0
    times.reset()
    now.seconds = 12.5
    assert times.seconds() == [0.0] * TASK + [0.5, 0.0, 0.0]


def test_what_a_reader_sees_never_decreases_when_the_task_switches_while_it_reads() -> None:
    now = Now()
    times = TimeAccount(now)

    def visit(bucket: int) -> None:
        for each in (bucket, TASK):
            now.seconds += 1.0
            times.switch(each)
        now.seconds += 1.0

    before = times.seconds()
    for bucket in (Wait.INPUT, Wait.OUTPUT_SOFT, TASK, Wait.INPUT):
        now.interrupt = lambda bucket=bucket: visit(bucket)
        torn = times.seconds()
        after = times.seconds()
        assert all(earlier <= later for earlier, later in zip(before, torn, strict=True))
        assert all(earlier <= later for earlier, later in zip(torn, after, strict=True))
        assert sum(after) == now.seconds - 10.0
        before = after


def test_an_account_that_measures_nothing_reads_no_clock() -> None:
    reads = 0

    def clock() -> float:
        nonlocal reads
        reads += 1
        return float(reads)

    times = time_account(clock, measures=False)
    sums = times.add_bucket()
    before = reads
    assert times.switch(times.switch(sums)) == TASK
    times.reset()
    assert times.seconds() == [0.0] * (sums + 1)
    assert reads == before
    assert time_account(clock, measures=True).switch(Wait.INPUT) == TASK
    assert reads == before + 2
