"""A call that waits in a library, and is interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from headgate.connectors.adbc.interruptible import Interruptible
from tests.runtime.jobs import eventually


def interrupted(calls: Interruptible, end: threading.Event, cancel: Callable[[], None]) -> None:
    """Run a call until `end`, and interrupt it."""

    def call() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        end.wait()

    with pytest.raises(KeyboardInterrupt):
        calls.run(call, cancel)


def test_a_call_returns_and_raises_what_the_function_does() -> None:
    calls = Interruptible()
    assert calls.run(lambda: 3, pytest.fail) == 3
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 // 0, pytest.fail)
    closed: list[bool] = []
    calls.close(lambda: closed.append(True))
    assert closed == [True]


def test_an_interrupt_cancels_the_call() -> None:
    calls, end, closed = Interruptible(), threading.Event(), threading.Event()
    interrupted(calls, end, end.set)
    calls.close(closed.set)
    assert closed.is_set(), "at once, since the call has ended"


def test_a_connection_whose_call_cannot_be_cancelled_is_closed_after_the_call() -> None:
    calls, end, closed = Interruptible(), threading.Event(), threading.Event()

    def cannot() -> None:
        raise NotImplementedError

    interrupted(calls, end, cannot)
    calls.close(closed.set)
    assert not closed.is_set()
    end.set()
    assert closed.wait(30)
    eventually(lambda: not any(thread.name.startswith("headgate-database") for thread in threading.enumerate()))


def test_a_call_that_has_not_begun_when_it_is_interrupted_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, called, closed = Interruptible(), threading.Event(), threading.Event()
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        started.append(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            calls.run(called.set, pytest.fail)
    started[0].run()
    assert not called.is_set()
    calls.close(closed.set)
    assert closed.is_set()
