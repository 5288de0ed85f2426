"""StormStatus: what Storm 2's tests of its tracker and queues hold, and how its signals fail."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ConfigError
from headgate.throttle.mechanism import Scope, SendPolicy, Task
from headgate.throttle.spilling_queue import SpillingQueue
from headgate.throttle.stage_signals import BackPressureStatus
from headgate.throttle.storm_status import StormStatus, StormWorker
from tests.examples import examples

A, B = (1, 0), (1, 1)


def worker(capacity: int, *tasks: Task, now: float = 0.0) -> StormWorker:
    return StormStatus(receive_buffer=capacity).stages(7, tasks, now)


def send(to: StormWorker, task: Task, count: int) -> list[BackPressureStatus]:
    """Let messages of another TaskManager arrive. Return the signals."""
    return [signal for _ in range(count) for signal in to.added(0.0, task, 0, sender=1)]


def consume(worker: StormWorker, task: Task, count: int) -> None:
    for _ in range(count):
        worker.taken(0.0, task, 0)


# --- the queue


class TwoQueues:
    """Storm's two queues with the messages themselves, consumed in rounds."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.bounded: deque[int] = deque()
        self.overflow: deque[int] = deque()
        self.rounds = self._consume()

    def add(self, message: int, is_remote: bool) -> None:
        full = len(self.bounded) >= self.capacity
        (self.overflow if is_remote and (full or self.overflow) else self.bounded).append(message)

    def _consume(self) -> Any:
        while True:
            while self.bounded:
                yield self.bounded.popleft()
            for _ in range(len(self.overflow)):
                yield self.overflow.popleft()


STEPS = st.lists(st.sampled_from(["remote", "local", "take"]), min_size=20, max_size=60)


@settings(max_examples=examples(500))
@given(capacity=st.integers(1, 4), steps=STEPS)
def test_the_counts_are_those_of_two_real_queues(capacity: int, steps: list[str]) -> None:
    counts, real = SpillingQueue(capacity), TwoQueues(capacity)
    taken = []
    for number, step in enumerate(steps):
        if step == "take" and counts.bounded + counts.overflow:
            counts.take()
            taken.append(next(real.rounds))
        elif step == "remote" or (step == "local" and counts.has_room):
            real.add(number, step == "remote")
            _ = counts.add_remote() if step == "remote" else counts.add_local()
        assert (counts.bounded, counts.overflow) == (len(real.bounded), len(real.overflow))
    remote = [number for number in taken if steps[number] == "remote"]
    assert all(one < other for one, other in pairwise(remote))  # a spill reorders nothing


def test_exactly_the_capacity_fits_and_one_taken_message_makes_room_for_one() -> None:
    queue = SpillingQueue(64)
    spilled = [queue.add_remote() for _ in range(100)]
    assert spilled == [False] * 64 + [True] * 36
    assert (queue.bounded, queue.overflow) == (64, 36)

    local = SpillingQueue(64)
    accepted = 0
    while local.has_room:
        local.add_local()
        accepted += 1
    assert accepted == 64
    local.take()
    assert local.has_room
    local.add_local()
    assert not local.has_room


def test_a_remote_message_goes_behind_the_overflow_although_there_is_room() -> None:
    queue = SpillingQueue(2)
    for _ in range(3):
        queue.add_remote()
    queue.take()
    assert queue.has_room
    assert queue.add_remote()
    assert (queue.bounded, queue.overflow) == (1, 2)


def test_local_messages_starve_the_overflow() -> None:
    """While producers here keep the bounded part from being empty, the overflow stays, and so does the throttle."""
    here = worker(2, A)
    assert len(send(here, A, 3)) == 1
    for step in range(1, 50):
        here.taken(0.0, A, 0)
        here.added(0.0, A, 0, sender=None)
        assert here.check(0.05 * step) == []
    consume(here, A, 3)
    assert here.check(3.0) == [BackPressureStatus(7, 2, full=(), free=(A,))]


# --- the tracker


def test_nothing_is_full_at_first() -> None:
    assert worker(1, A, B).status() == BackPressureStatus(7, 1, full=(), free=(A, B))


def test_a_full_subtask_is_reported_once() -> None:
    here = worker(2, A, B)
    assert send(here, A, 2) == []
    assert send(here, A, 1) == [BackPressureStatus(7, 1, full=(A,), free=(B,))]
    assert send(here, A, 5000) == []
    assert send(here, B, 3) == [BackPressureStatus(7, 2, full=(A, B), free=())]


def test_an_overflow_that_grows_by_more_than_10000_messages_is_reported_again() -> None:
    here = worker(1, A)
    assert len(send(here, A, 2)) == 1  # the overflow was empty before this message
    assert send(here, A, 10_000) == []
    assert send(here, A, 1) == [BackPressureStatus(7, 2, full=(A,), free=())]
    assert send(here, A, 10_000) == []
    assert len(send(here, A, 1)) == 1


def test_a_subtask_is_full_until_its_overflow_is_empty() -> None:
    here = worker(3, A)
    send(here, A, 5)
    consume(here, A, 4)  # three of the bounded part, one of two in the overflow
    assert here.check(0.05) == []
    consume(here, A, 1)
    assert here.check(0.1) == [BackPressureStatus(7, 2, full=(), free=(A,))]
    assert here.check(0.15) == []  # nothing has changed


def test_the_overflow_is_looked_at_every_50_ms() -> None:
    here = worker(1, A, now=10.0)
    assert here.next_check == 10.05
    here.check(10.06)
    assert here.next_check == pytest.approx(10.11)


def test_a_new_connection_gets_the_whole_status() -> None:
    here, there = worker(1, A, B), worker(1)
    send(here, B, 2)
    (status,) = here.connected()
    there.on_signal(0.0, status)
    assert (there.may_send(A), there.may_send(B)) == (True, False)


# --- the senders


def test_only_senders_of_the_full_subtask_wait() -> None:
    here, there = worker(1, A, B), worker(1)
    for signal in send(here, A, 2):
        there.on_signal(0.0, signal)
    assert (there.may_send(A), there.may_send(B)) == (False, True)
    consume(here, A, 2)
    (cleared,) = here.check(0.05)
    assert cleared.scope is Scope.SENDERS
    there.on_signal(0.0, cleared)
    assert there.may_send(A)


def test_the_statuses_of_several_taskmanagers_do_not_mix() -> None:
    here, there = worker(1), worker(1, A)
    there.on_signal(0.0, BackPressureStatus(1, 1, full=(B,), free=()))
    there.on_signal(0.0, BackPressureStatus(2, 1, full=(), free=((2, 0),)))
    assert not there.may_send(B)
    assert here.may_send(B)


def test_a_producer_of_the_same_taskmanager_needs_no_signal() -> None:
    here: SendPolicy = worker(1, A)
    assert isinstance(here, StormWorker)
    assert here.may_send(A)
    here.added(0.0, A, 0, sender=None)
    assert not here.may_send(A)
    here.taken(0.0, A, 0)
    assert here.may_send(A)


def test_a_taskmanager_waits_for_its_connections_too() -> None:
    there = worker(1, A)
    assert [there.may_send(B, transferring) for transferring in (0, 999, 1000)] == [True, True, False]
    assert there.may_send(A, 1000)


# --- what goes wrong in Storm goes wrong here


def test_a_lost_clear_signal_stops_the_sender_until_the_next_change_or_connection() -> None:
    here, there = worker(1, A, B), worker(1)
    for signal in send(here, A, 2):
        there.on_signal(0.0, signal)
    consume(here, A, 2)
    assert here.check(0.05)  # lost
    assert [here.check(0.1 + 0.05 * step) for step in range(1000)] == [[]] * 1000
    assert not there.may_send(A)
    for signal in send(here, B, 2):  # another subtask changes
        there.on_signal(0.0, signal)
    assert (there.may_send(A), there.may_send(B)) == (True, False)


def test_a_lost_signal_is_made_up_for_after_10000_more_messages() -> None:
    here, there = worker(1, A), worker(1)
    assert len(send(here, A, 2)) == 1  # lost
    sent = 0
    while there.may_send(A):
        for signal in send(here, A, 1):
            there.on_signal(0.0, signal)
        sent += 1
    assert sent == 10_001


def test_an_old_signal_that_arrives_late_is_applied() -> None:
    here, there = worker(1, A), worker(1)
    (full,) = send(here, A, 2)
    consume(here, A, 2)
    (free,) = here.check(0.05)
    for signal in (free, full):
        there.on_signal(0.0, signal)
    assert free.number > full.number
    assert not there.may_send(A)


def test_tasks_in_a_circle_stop_for_ever() -> None:
    """STORM-3637: each waits for room at the other, and takes nothing while it waits."""
    one, other = worker(1, A), worker(1, B)
    for here, there, task in ((one, other, A), (other, one, B)):
        for signal in send(here, task, 2):
            there.on_signal(0.0, signal)
    for step in range(1, 100):
        for here, there, task, target in ((one, other, A, B), (other, one, B, A)):
            if here.may_send(target):
                here.taken(0.05 * step, task, 0)
            for status in here.check(0.05 * step):
                there.on_signal(0.0, status)
    assert not one.may_send(B)
    assert not other.may_send(A)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"receive_buffer": 0}, "receive_buffer=0 is impossible: it must be a whole number of at least 1"),
        ({"transfer_buffer": 0.5}, "transfer_buffer=0.5 is impossible: it must be a whole number of at least 1"),
        ({"check_interval": -1}, "check_interval=-1 is impossible: it must be above 0"),
        ({"check_interval": 0}, "check_interval=0 is impossible: it must be above 0"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        StormStatus(**wrong)
