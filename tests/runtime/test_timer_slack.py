"""A task's thread wakes when it asked to; other threads keep the system's timer slack."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from headgate.runtime.task.task_thread import run_task
from headgate.runtime.task.timer_slack import remove_timer_slack

_PR_GET_TIMERSLACK = 30

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")


def slack() -> int:
    return int(ctypes.CDLL(None).prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0))


def in_a_thread(*calls: object) -> list[int]:
    seen: list[int] = []

    def run() -> None:
        for call in calls:
            assert callable(call)
            call()
        seen.append(slack())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return seen


def test_only_the_calling_thread_loses_its_slack() -> None:
    before = slack()
    seen = in_a_thread(remove_timer_slack)
    assert seen == [1]
    assert slack() == before


def test_the_thread_of_a_task_has_no_slack() -> None:
    class Stopped(Exception): ...

    class Clock:
        def start(self) -> None:
            raise Stopped

    class TaskOfThisTest:
        thread = Clock()

    def run() -> None:
        with pytest.raises(Stopped):
            run_task(TaskOfThisTest(), lambda *_: None)  # type: ignore[arg-type]

    seen = in_a_thread(run)
    assert seen == [1]
