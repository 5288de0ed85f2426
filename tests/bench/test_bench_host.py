"""Cores that are kept awake, and what the host took."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from headgate.bench.host import cores_awake, stolen_seconds

pytestmark = pytest.mark.alone


def idle_children() -> list[int]:
    """Cores of this process's children that run only when nothing else does."""
    found: list[Any] = []
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if os.sched_getscheduler(int(child)) == os.SCHED_IDLE:
            found += os.sched_getaffinity(int(child))
    return sorted(found)


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_IDLE is Linux's")
def test_every_core_has_something_of_no_priority_to_do_until_the_end() -> None:
    with cores_awake() as awake:
        assert awake
        assert idle_children() == sorted(os.sched_getaffinity(0))
    assert idle_children() == []


def test_elsewhere_cores_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "SCHED_IDLE", raising=False)
    with cores_awake() as awake:
        assert not awake


def test_what_the_host_took(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 0 10 500 0 0 0 250 7 0\ncpu0 5 0 5 250 0 0 0 150 7 0\n")
    assert stolen_seconds(stat) == pytest.approx(250 / os.sysconf("SC_CLK_TCK"))
    stat.write_text("cpu  10 0 10 500\n")
    assert stolen_seconds(stat) == 0.0
    assert stolen_seconds(tmp_path / "absent") == 0.0
