"""Reads from Linux how many processors a process may use: its affinity, and the quotas of its control groups."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from headgate.runtime.kernel_files import read_kernel_file

#: Seconds for which limits count as unchanged. To read them takes as long as all other counters of the machine.
_PERIOD: Final = 10.0


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A folder of a control group that may have a processor quota. `version` is 1 or 2."""

    folder: Path
    version: int


class ProcessorLimits:
    """Reads the limits of this process. `root` is the root folder of the file system; tests pass another folder, and
    another `clock`."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._groups = list(_numbered(control_groups(root)))
        self._clock = clock
        self._read_at = -math.inf
        self._limits: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return the limits by name, as they were at most ten seconds ago. A value is None if the system does not
        provide it.

        - `affinity`: the numbers of the processors on which the calling thread may run.
        - `quotas`: for each control group with a quota, the group's number and how many processors it may use. The
          processes of a group, and of the groups below it, share the quota.
        """
        now = self._clock()
        if now - self._read_at >= _PERIOD:
            self._read_at, self._limits = now, self._read()
        return self._limits

    def _read(self) -> dict[str, Any]:
        limits = [(number, _quota(group)) for number, group in self._groups]
        known = [(number, quota) for number, quota in limits if quota is not None]
        return {
            "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
            "quotas": sorted((number, quota) for number, quota in known if quota < math.inf) if known else None,
        }


def control_groups(root: Path) -> Iterator[ControlGroup]:
    """Yield the process's control group and those above it.

    In a container, the paths in /proc/self/cgroup may be those of the host. Then only the topmost group is found.
    """
    folder = root / "sys/fs/cgroup"
    content = read_kernel_file(str(root / "proc/self/cgroup")) or b"0::/\n1:cpu:/"
    for line in content.decode("ascii", errors="replace").splitlines():
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        for group in {PurePosixPath("/"), PurePosixPath(path), *PurePosixPath(path).parents}:
            below = str(group).lstrip("/.")
            if not controllers:
                yield ControlGroup(folder / below, 2)
            elif "cpu" in controllers.split(","):
                yield ControlGroup(folder / "cpu" / below, 1)


def _numbered(groups: Iterable[ControlGroup]) -> Iterator[tuple[int, ControlGroup]]:
    """Yield the groups that the process may see, each with its number."""
    for group in groups:
        try:
            number = group.folder.stat().st_ino
        except OSError:  # the folder is missing, or a sandbox keeps it from the process
            continue
        yield number, group


def _quota(group: ControlGroup) -> float | None:
    """Return how many processors a group may use, infinity without a quota, or None if its files do not say it."""
    names = ("cpu.max",) if group.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    values = b" ".join(read_kernel_file(str(group.folder / name)) or b"" for name in names).split()
    if len(values) != 2 or not values[1].isdigit() or int(values[1]) == 0:
        return None
    if values[0] in {b"max", b"-1"}:
        return math.inf
    return int(values[0]) / int(values[1]) if values[0].isdigit() else None
