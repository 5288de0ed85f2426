"""Mail and wake-ups between threads: none is missed, several are one."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from headgate.runtime.task.mailbox import Mailbox, Signal


def test_a_signal_waits_for_nothing_that_has_happened_already() -> None:
    signal = Signal()
    signal.set()
    signal.set()
    assert signal.wait(None)
    assert not signal.wait(0), "several are one, and it was seen"


@pytest.mark.alone
def test_a_signal_that_does_not_come_is_waited_for_no_longer_than_asked() -> None:
    signal = Signal()
    began = time.monotonic()
    assert not signal.wait(0.02)
    assert 0.015 <= time.monotonic() - began < 5
    assert not signal.wait(-1.0), "a deadline that has passed"


def test_a_very_long_wait_is_possible() -> None:
    signal = Signal()
    signal.set()
    assert signal.wait(1e30)


def test_a_signal_can_be_set_again_after_it_was_missed() -> None:
    signal = Signal()
    assert not signal.wait(0)
    signal.set()
    assert signal.wait(0)


def test_no_signal_is_lost_between_two_threads() -> None:
    """Each number is written before the signal; the thread that is woken must see all that was written before."""
    signal, answers = Signal(), Signal()
    written, seen = [0], [0]

    def reader() -> None:
        while seen[0] < 2000:
            assert signal.wait(60)
            if written[0] != seen[0]:
                seen[0] = written[0]
                answers.set()

    thread = threading.Thread(target=reader)
    thread.start()
    for number in range(1, 2001):
        written[0] = number
        signal.set()
        while seen[0] < number:
            assert answers.wait(60), f"stuck at {seen[0]} of {number}"
    thread.join(10)
    assert not thread.is_alive()


def test_mail_runs_in_the_order_sent_when_it_is_run() -> None:
    mailbox, ran = Mailbox(), list[int]()
    for number in range(3):
        mailbox.put(partial(ran.append, number))
    assert ran == []
    assert mailbox.wait(0)
    mailbox.run()
    mailbox.run()
    assert ran == [0, 1, 2]


def test_mail_may_send_mail() -> None:
    mailbox, ran = Mailbox(), list[str]()
    mailbox.put(lambda: mailbox.put(lambda: ran.append("second")))
    mailbox.run()
    assert ran == ["second"]


def test_what_mail_raises_reaches_the_task_and_leaves_the_rest() -> None:
    mailbox, ran = Mailbox(), list[int]()
    mailbox.put(lambda: 1 // 0)  # type: ignore[arg-type]
    mailbox.put(lambda: ran.append(1))
    with pytest.raises(ZeroDivisionError):
        mailbox.run()
    mailbox.run()
    assert ran == [1]


def test_mail_and_wake_end_a_wait_of_the_task() -> None:
    for begin in ("put", "wake"):
        mailbox, woken = Mailbox(), []
        task = threading.Thread(target=lambda mailbox=mailbox, woken=woken: woken.append(mailbox.wait(60)))
        task.start()
        if begin == "put":
            mailbox.put(lambda: None)
        else:
            mailbox.wake()
        task.join(10)
        assert woken == [True]
