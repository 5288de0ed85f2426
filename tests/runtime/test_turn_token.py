"""The token that lets one task of a process compute at a time."""

from __future__ import annotations

import os
import threading
from collections import Counter
from itertools import pairwise

import pytest

from headgate.runtime.task.turn_token import PATIENCE, QUANTUM, TokenUser, TurnToken, token_for_thread


class Clocks:
    """A wall clock and the processor clock of all threads, which the test sets."""

    def __init__(self) -> None:
        self.now = self.used = 1.0

    def pass_time(self, seconds: float, computes: bool) -> None:
        self.now += seconds
        self.used += seconds if computes else 0.0


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def token(clocks: Clocks) -> TurnToken:
    return TurnToken(lambda: clocks.now, lambda: clocks.used)


def waiting(user: TokenUser) -> threading.Thread:
    """Return a thread that waits for the token of `user`."""
    assert not user.take()
    thread = threading.Thread(target=user.wait)
    thread.start()
    return thread


def test_a_task_alone_keeps_the_token(token: TurnToken, clocks: Clocks) -> None:
    user = token.user()
    for _ in range(3):
        assert user.take()
        clocks.pass_time(1.0, computes=True)
    assert user.holds
    user.give_back()
    assert not user.holds


def test_the_token_goes_on_when_its_time_is_over(token: TurnToken, clocks: Clocks) -> None:
    one, other = token.user(), token.user()
    assert one.take()
    assert not other.take()
    clocks.pass_time(QUANTUM / 2, computes=True)
    assert one.take(), "its time is not over"
    clocks.pass_time(QUANTUM, computes=True)
    assert not one.take()
    other.wait()
    assert other.holds
    other.give_back()
    one.wait()
    assert one.holds


def test_tasks_get_the_token_in_the_order_of_their_requests(token: TurnToken) -> None:
    users = [token.user() for _ in range(4)]
    assert [user.take() for user in users] == [True, False, False, False]
    for user, following in pairwise(users):
        user.give_back()
        following.wait()
        assert following.holds


def test_nobody_waits_for_a_batch_that_takes_too_long(token: TurnToken, clocks: Clocks) -> None:
    slow, one, other = (token.user() for _ in range(3))
    assert slow.take()
    thread = waiting(one)
    clocks.pass_time(2 * PATIENCE, computes=True)
    thread.join()
    assert slow.holds
    assert one.take(), "without the token"
    assert other.take(), "others do not wait again for the same batch"
    assert not one.holds
    slow.give_back()
    assert one.take()
    assert one.holds


def test_a_short_wait_in_a_long_queue_is_no_reason_to_go_without(token: TurnToken, clocks: Clocks) -> None:
    first, second, last = (token.user() for _ in range(3))
    assert first.take()
    assert not second.take()
    thread = waiting(last)
    clocks.pass_time(0.9 * PATIENCE, computes=True)
    first.give_back()
    second.wait()
    clocks.pass_time(0.9 * PATIENCE, computes=True)  # `last` has waited for longer, but not for one holder
    second.give_back()
    thread.join()
    assert last.holds


def test_a_task_that_waits_inside_its_batch_goes_without_the_token(token: TurnToken, clocks: Clocks) -> None:
    sleeper, other = token.user(), token.user()
    for _ in range(4):
        assert sleeper.take()
        assert sleeper.holds
        assert not other.take()
        clocks.pass_time(0.002, computes=True)
        clocks.pass_time(0.004, computes=False)
        sleeper.give_back()
        other.wait()
        other.give_back()
    assert other.take()
    assert sleeper.take(), "it need not wait, since it hardly computes"
    assert not sleeper.holds
    other.give_back()
    clocks.pass_time(2.3, computes=True)
    assert sleeper.take()
    assert not sleeper.holds, "it stays away for a hundred times as long"
    clocks.pass_time(0.2, computes=True)
    assert sleeper.take()
    assert sleeper.holds, "then it tries again"


def test_a_holder_that_turns_out_to_sleep_goes_on_at_once(token: TurnToken, clocks: Clocks) -> None:
    sleeper, other = token.user(), token.user()
    assert sleeper.take()
    assert not other.take()
    clocks.pass_time(0.3, computes=False)
    assert sleeper.take(), "it passes the token on, and does not wait for it"
    other.wait()
    assert other.holds


def test_a_task_that_others_interrupt_keeps_its_place(token: TurnToken, clocks: Clocks) -> None:
    user, other = token.user(), token.user()
    for computes in (True, False, True, False) * 10:
        assert user.take()
        assert user.holds
        assert not other.take()
        clocks.pass_time(0.001, computes)
        user.give_back()
        other.wait()
        other.give_back()


def test_a_wait_that_nobody_minds_changes_nothing(token: TurnToken, clocks: Clocks) -> None:
    user = token.user()
    assert user.take()
    clocks.pass_time(1.0, computes=False)
    user.give_back()
    assert user.take()
    assert user.holds


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot keep a thread on a core")
def test_threads_of_one_core_need_no_token() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        pytest.skip("this machine has one core")
    assert token_for_thread() is token_for_thread()
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert token_for_thread() is not token_for_thread()
    finally:
        os.sched_setaffinity(0, cores)


def test_threads_exclude_each_other_and_none_starves() -> None:
    token, inside, turns = TurnToken(), [], Counter[int]()
    overlaps = 0

    def run(number: int) -> None:
        nonlocal overlaps
        user = token.user()
        for turn in range(3000):
            if not user.take():
                user.wait()
            if user.holds:
                inside.append(number)
                overlaps += len(inside) > 1
                inside.remove(number)
            turns[number] += 1
            if turn % 7 == number:
                user.give_back()
        user.give_back()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (overlaps, set(turns.values())) == (0, {3000})
    assert token.user().take()
