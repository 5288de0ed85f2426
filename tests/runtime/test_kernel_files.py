"""Tests for `runtime/kernel_files.py`."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.runtime import kernel_files
from headgate.runtime.kernel_files import KernelFile, read_kernel_file
from tests.runtime.jobs import eventually


@contextmanager
def long_turns(turns: list[int]) -> Iterator[None]:
    """A thread keeps the interpreter lock inside of this context until it releases the lock itself.

    `turns` counts the turns of the other thread.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        before = turns[0]
        eventually(lambda: turns[0] > before + 1)  # so it no longer asks for the lock after the usual interval
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
        with long_turns(turns):
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


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_handle_stays_open(tmp_path: Path) -> None:
    before = descriptors()
    for path in ("/proc/version", str(tmp_path), str(tmp_path / "missing")):
        read_kernel_file(path)
    assert descriptors() == before


def test_a_file_stays_open_until_it_is_closed(tmp_path: Path) -> None:
    before = descriptors()
    path = tmp_path / "changes"
    file = KernelFile(str(path))
    assert file.read() is None  # it is not there yet
    for text in ("a longer text", "text"):
        path.write_text(text)
        assert file.read() == text.encode()
        assert descriptors() == before + 1
    for _ in range(2):
        file.close()
        assert file.read() is None
        assert descriptors() == before


def test_in_a_process_with_many_open_files_it_does_not_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    monkeypatch.setattr(kernel_files, "_SHARE", 3 / resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    file = KernelFile("/proc/version")
    for _ in range(2):
        assert file.read() == Path("/proc/version").read_bytes()
        assert descriptors() == before
