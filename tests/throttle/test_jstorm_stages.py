"""JStormStages: the marks of JStorm 2.2 and later, who is stopped, and how a signal is lost."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.throttle.jstorm_stages import JStormStages, JStormWorker
from headgate.throttle.mechanism import Scope, SendPolicy, Task
from headgate.throttle.stage_signals import JStormStop

A, B = (1, 0), (1, 1)
HERE, ONE, OTHER = 0, 1, 2


def worker(number: int = HERE, *tasks: Task, capacity: int = 256) -> JStormWorker:
    return JStormStages(receive_buffer=capacity).stages(number, tasks)


def stop(sender: int, task: Task = A) -> JStormStop:
    return JStormStop(sender, HERE, task, stops=True)


def go(sender: int, task: Task = A) -> JStormStop:
    return JStormStop(sender, HERE, task, stops=False)


def arrive(worker: JStormWorker, task: Task, *senders: int) -> list[JStormStop]:
    return [signal for sender in senders for signal in worker.added(0.0, task, 0, sender)]


def take(worker: JStormWorker, task: Task, count: int) -> list[JStormStop]:
    return [signal for _ in range(count) for signal in worker.taken(0.0, task, 0)]


def test_a_queue_over_its_high_mark_stops_the_sender_of_that_message() -> None:
    here = worker(HERE, A, B)
    assert arrive(here, A, *[ONE] * 204) == []  # 80 % of 256 are 204.8
    assert arrive(here, A, ONE) == [stop(ONE)]
    assert arrive(here, A, ONE) == []
    assert stop(ONE).scope is Scope.ONE_SENDER


def test_a_queue_at_its_high_mark_is_not_over_it() -> None:
    here = worker(HERE, A, capacity=10)
    assert arrive(here, A, *[ONE] * 8) == []
    assert arrive(here, A, ONE) == [stop(ONE)]


def test_another_sender_is_stopped_by_its_own_next_message() -> None:
    here = worker(HERE, A)
    arrive(here, A, *[ONE] * 205)
    assert arrive(here, A, OTHER, OTHER) == [stop(OTHER)]


def test_all_stopped_senders_go_on_below_the_low_mark() -> None:
    here = worker(HERE, A)
    arrive(here, A, *[ONE] * 205, *[OTHER] * 10)
    assert take(here, A, 10 + 205 - 52) == []  # 20 % of 256 are 51.2
    assert take(here, A, 1) == [go(ONE), go(OTHER)]
    assert take(here, A, 51) == []


def test_messages_beside_the_queue_are_without_limit_and_are_taken_first() -> None:
    here = worker(HERE, A, capacity=10)
    arrive(here, A, *[ONE] * 1000)
    assert take(here, A, 991 + 7) == []
    assert take(here, A, 1) == [go(ONE)]


def test_senders_of_other_subtasks_go_on() -> None:
    here, there = worker(HERE, A, B), worker(ONE)
    policy: SendPolicy = there
    there.on_signal(0.0, stop(ONE))
    assert not there.may_send(A)
    assert policy.may_send(B, 0)
    there.on_signal(0.0, go(ONE))
    assert there.may_send(A)
    assert here.may_send(B)


def test_a_stopped_sender_still_takes_64_kb() -> None:
    there = worker(ONE)
    there.on_signal(0.0, stop(ONE))
    assert not there.may_send(A)
    assert [there.may_hold(A, cached) for cached in (0, 65_535, 65_536)] == [True, True, False]


def test_a_producer_of_the_same_taskmanager_waits_between_the_same_marks() -> None:
    here = worker(HERE, A, capacity=10)
    sent = 0
    while here.may_send(A):
        here.added(0.0, A, 0, None)
        sent += 1
    assert sent == 9  # the message after 80 %
    assert not here.may_hold(A, 1)
    taken = 0
    while not here.may_send(A):
        here.taken(0.0, A, 0)
        taken += 1
    assert taken == 7  # to 20 %, included


def test_a_lost_release_is_never_repeated() -> None:
    here, there = worker(HERE, A, capacity=10), worker(ONE)
    for signal in arrive(here, A, *[ONE] * 9):
        there.on_signal(0.0, signal)
    assert take(here, A, 9) == [go(ONE)]  # lost
    assert not there.may_send(A)


def test_a_lost_stop_is_never_repeated() -> None:
    here = worker(HERE, A, capacity=10)
    assert arrive(here, A, *[ONE] * 100_000) == [stop(ONE)]  # lost: what waits has no limit


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"receive_buffer": 0}, "receive_buffer=0 is impossible"),
        ({"low": 0.9}, "low=0.9 and high=0.8 are impossible"),
        ({"sender_cache": 0}, "sender_cache=0 is impossible"),
        ({"sender_cache": "much"}, "'much' is not a size"),
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}"):
        JStormStages(**wrong)
