"""The time of waits: added up, read while a wait is open, and measured at its ends only."""

from __future__ import annotations

from headgate.protocol.waiting_time import WaitingTime


class Clock:
    """A clock that a test moves. It counts how often it is read."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now


def test_waits_add_up_and_the_open_one_counts_until_now() -> None:
    clock = Clock()
    waiting = WaitingTime(clock)
    assert waiting.seconds == 0
    waiting.note(True)
    clock.now += 2
    assert waiting.seconds == 2
    waiting.note(False)
    clock.now += 5
    assert waiting.seconds == 2
    waiting.note(True)
    clock.now += 1
    assert waiting.seconds == 3


def test_what_does_not_change_a_wait_reads_no_clock() -> None:
    clock = Clock()
    waiting = WaitingTime(clock)
    waiting.note(False)
    assert clock.reads == 0
    waiting.note(True)
    waiting.note(True)
    assert clock.reads == 1
    assert waiting.is_waiting


def test_a_clock_that_a_reader_has_read_early_makes_no_time_negative() -> None:
    clock = Clock()
    waiting = WaitingTime(clock)
    waiting.note(True)
    clock.now -= 1
    assert waiting.seconds == 0
