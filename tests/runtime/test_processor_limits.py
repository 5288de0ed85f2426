"""How many processors a process may use is read as it stands, and what the system does not say is unknown."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headgate.runtime.processor_limits import ProcessorLimits


def quotas(root: Path, files: Mapping[str, str]) -> Any:
    """Return the quotas of a system with these files, by the folder of their group."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = ProcessorLimits(root).read()["quotas"]
    top = root / "sys/fs/cgroup"
    names = {path.stat().st_ino: str(path.relative_to(top)) for path in (top, *top.rglob("*")) if path.is_dir()}
    return None if found is None else {names[number]: quota for number, quota in found}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"cpu.max": "150000 100000\n"}, {".": 1.5}),
        ({"cpu.max": "max 100000\n"}, {}),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "200000\n"}, {"cpu": 2.0}),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, {}),
        ({"cpu/cpu.cfs_quota_us": "400000\n"}, None),
        ({"cpu.max": "150000 0\n"}, None),
        ({"cpu.max": "many 100000\n"}, None),
        ({"cpu.max": "150000\n"}, None),
        ({"cpu.max": ""}, None),
        ({"cpu.stat": "throttled_usec 1\n"}, None),
    ],
)
def test_a_quota_is_read_from_both_versions(tmp_path: Path, files: dict[str, str], found: Any) -> None:
    assert quotas(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()}) == found


def test_the_quotas_of_all_groups_of_the_process_count(tmp_path: Path) -> None:
    """Another group's does not, and neither does one that is not there."""
    files = {
        "proc/self/cgroup": "0::/jobs/nightly/main\n",
        "sys/fs/cgroup/jobs/nightly/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/jobs/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/other/cpu.max": "100000 100000\n",
    }
    assert quotas(tmp_path, files) == {"jobs/nightly": 0.5, "jobs": 4.0}


def test_a_quota_that_changes_is_seen_ten_seconds_later(tmp_path: Path) -> None:
    file, now = tmp_path / "sys/fs/cgroup/cpu.max", [100.0]
    file.parent.mkdir(parents=True)
    file.write_text("100000 100000\n")
    limits = ProcessorLimits(tmp_path, clock=lambda: now[0])
    seen = []
    for at, text in ((100.0, "200000 100000\n"), (109.0, "300000 100000\n"), (110.0, "400000 100000\n")):
        now[0] = at
        seen.append([quota for _, quota in limits.read()["quotas"]])
        file.write_text(text)
    assert seen == [[1.0], [1.0], [3.0]]


def test_without_control_groups_quotas_are_unknown(tmp_path: Path) -> None:
    assert ProcessorLimits(tmp_path / "empty").read()["quotas"] is None


def test_control_groups_that_a_sandbox_hides_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "proc/self/cgroup": "0::/jobs/nightly\n",
        "sys/fs/cgroup/jobs/nightly/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/jobs/cpu.max": "400000 100000\n",
    }
    stat = Path.stat

    def hides(path: Path, **options: Any) -> os.stat_result:
        if path.name == "nightly":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    quotas(tmp_path, files)
    monkeypatch.setattr(Path, "stat", hides)
    assert [quota for _, quota in ProcessorLimits(tmp_path).read()["quotas"]] == [4.0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has an affinity")
def test_the_affinity_is_that_of_the_process() -> None:
    assert ProcessorLimits().read()["affinity"] == sorted(os.sched_getaffinity(0))


def test_without_an_affinity_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert ProcessorLimits().read()["affinity"] is None
