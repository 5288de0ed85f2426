"""Tests for `runtime/kernel_files.py`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.runtime.kernel_files import read_kernel_file


@contextmanager
def long_turns() -> Iterator[None]:
    """A thread keeps the interpreter lock inside of this context until it releases the lock itself."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        time.sleep(2 * usual)  # until no thread still asks for the lock after the usual interval
        yield
    finally:
        sys.setswitchinterval(usual)


def test_a_read_keeps_the_interpreter_lock() -> None:
    turns, is_over = [0], threading.Event()

    def take_turns() -> None:
        while not is_over.is_set():
            turns[0] += 1
            time.sleep(0)

    other = threading.Thread(target=take_turns)
    other.start()
    try:
        with long_turns():
            before = turns[0]
            for _ in range(300):
                assert read_kernel_file("/proc/self/stat")
            during = turns[0] - before
    finally:
        is_over.set()
        other.join()
    assert during == 0


def test_a_file_is_read_whole() -> None:
    assert read_kernel_file("/proc/version") == Path("/proc/version").read_bytes()


def test_of_a_long_file_its_beginning_is_read(tmp_path: Path) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"a" * 4096 + b"b")
    assert read_kernel_file(str(file)) == b"a" * 4096


@pytest.mark.parametrize("name", ["missing", "", "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_file_that_cannot_be_read_has_no_content(tmp_path: Path, name: str) -> None:
    assert read_kernel_file(str(tmp_path / name)) is None


def test_no_handle_stays_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("/proc/version", str(tmp_path), str(tmp_path / "missing")):
        read_kernel_file(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
