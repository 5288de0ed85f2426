"""`WakeUp` with an eventfd and with a pipe."""

from __future__ import annotations

import os
import select

import pytest

from headgate.transport.wake_up import WakeUp


@pytest.fixture(params=["eventfd", "pipe"])
def wake_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> WakeUp:
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    return WakeUp()


def is_readable(wake_up: WakeUp) -> bool:
    return bool(select.select([wake_up], [], [], 0)[0])


def test_it_is_readable_until_it_is_cleared(wake_up: WakeUp) -> None:
    wake_up.clear()  # nothing to clear
    assert not is_readable(wake_up)
    wake_up.set()
    wake_up.set()
    assert is_readable(wake_up)
    wake_up.clear()
    assert not is_readable(wake_up)
    wake_up.close()


def test_a_full_pipe_stays_readable(wake_up: WakeUp) -> None:
    for _ in range(20_000):
        wake_up.set()
    assert is_readable(wake_up)
    wake_up.close()


def test_after_its_end_it_writes_to_no_other_file(wake_up: WakeUp) -> None:
    wake_up.close()
    wake_up.close()
    reads, writes = os.pipe()  # they get the numbers of the closed descriptors
    os.set_blocking(reads, False)
    wake_up.set()
    with pytest.raises(BlockingIOError):
        os.read(reads, 1)
    os.close(reads)
    os.close(writes)
