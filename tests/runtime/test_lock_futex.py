"""Tests for `runtime/lock_futex.py`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headgate.runtime.kernel_files import read_kernel_file
from headgate.runtime.lock_futex import data_around, interpreter_data, waits_for_the_lock
from tests.runtime.jobs import eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


@contextmanager
def thread(does: Callable[[threading.Event], object]) -> Iterator[int]:
    """Run a function in a thread, whose number in /proc is the value, until the context ends."""
    numbers: list[int] = []
    is_started, is_over = threading.Event(), threading.Event()

    def run() -> None:
        numbers.append(threading.get_native_id())
        is_started.set()
        does(is_over)

    one = threading.Thread(target=run)
    one.start()
    is_started.wait()
    try:
        yield numbers[0]
    finally:
        is_over.set()
        one.join()


def looks(number: int, count: int) -> list[bool]:
    """Look `count` times whether a thread is at the lock."""
    data = interpreter_data()
    assert data is not None
    seen = []
    for _ in range(count):
        time.sleep(0.001)
        seen.append(waits_for_the_lock(read_kernel_file(f"/proc/self/task/{number}/syscall") or b"", data))
    return seen


def compute(is_over: threading.Event) -> None:
    while not is_over.is_set():
        sum(range(1000))


def test_a_thread_that_computes_gives_the_lock_to_who_looks_and_waits_for_it() -> None:
    with thread(compute) as number:
        assert any(any(looks(number, 20)) for _ in range(100))


@pytest.mark.parametrize("wait", [threading.Event.wait, lambda is_over: is_over.wait(60)])
def test_a_thread_that_waits_for_another_lock_is_not_at_the_interpreters(
    wait: Callable[[threading.Event], object],
) -> None:
    with thread(wait) as number:
        # It stays there, but on a slow machine it may take a while to get there: before, it waits for the interpreter.
        eventually(lambda: not any(looks(number, 100)))


MAPS = """\
55e0-55f0 r-xp 00000000 fe:00 7 /usr/bin/python
55f0-5600 rw-p 00000000 fe:00 7 /usr/bin/python
5600-5620 rw-p 00000000 00:00 0
5620-5700 rw-p 00000000 00:00 0                          [heap]
7f00-7f10 rw-p 00000000 fe:00 8 /usr/lib/libother.so
7f10-7f20 rw-p 00000000 fe:00 9 /usr/lib/libpython.so
7f20-7f30 r-xp 00000000 fe:00 9 /usr/lib/libnext.so
""".splitlines()


@pytest.mark.parametrize(
    ("address", "data"),
    [(0x55F8, range(0x55F0, 0x5620)), (0x7F18, range(0x7F10, 0x7F20)), (0x7F20, range(0x7F20, 0x7F30)), (0x9000, None)],
)
def test_data_end_where_other_data_begin(address: int, data: range | None) -> None:
    assert data_around(MAPS, address) == data
