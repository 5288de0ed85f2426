"""Cores that are kept awake, and the time that the host took from them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.bench import host
from headgate.bench.host import cores_awake, stolen_seconds


def idle_children() -> list[int]:
    """Return the cores of this process's children that have idle priority."""
    found: list[Any] = []
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if os.sched_getscheduler(int(child)) == os.SCHED_IDLE:
            found += os.sched_getaffinity(int(child))
    return sorted(found)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernel reads how long a core may take to wake up."""
    (tmp_path / "driver").write_text("haltpoll\n")
    monkeypatch.setattr(host, "_SLEEP_DRIVER", tmp_path / "driver")
    monkeypatch.setattr(host, "_WAKE_UP_LIMIT", tmp_path / "limit")
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
def test_the_kernel_is_asked_to_keep_the_cores_awake(asked: Path) -> None:
    with cores_awake() as awake:
        assert awake
        assert (asked / "limit").read_bytes() == bytes(4)
        assert idle_children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
@pytest.mark.parametrize("may_ask", [False, True])
def test_else_every_core_runs_a_process_of_idle_priority_until_the_end(asked: Path, *, may_ask: bool) -> None:
    """That is so if the user may not ask, and if no driver lets the cores sleep, so that the request has no effect."""
    if may_ask:
        (asked / "driver").write_text("none\n")
    else:
        (asked / "limit").mkdir()
    with cores_awake() as awake:
        assert awake
        assert idle_children() == sorted(os.sched_getaffinity(0))
    assert idle_children() == []


def test_cores_are_not_kept_awake_if_the_system_cannot(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "SCHED_IDLE", raising=False)
    (asked / "driver").unlink()
    with cores_awake() as awake:
        assert not awake


def test_stolen_seconds_are_read_from_proc_stat(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 0 10 500 0 0 0 250 7 0\ncpu0 5 0 5 250 0 0 0 150 7 0\n")
    assert stolen_seconds(stat) == pytest.approx(250 / os.sysconf("SC_CLK_TCK"))
    stat.write_text("cpu  10 0 10 500\n")
    assert stolen_seconds(stat) == 0.0
    assert stolen_seconds(tmp_path / "absent") == 0.0
