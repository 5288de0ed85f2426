"""A slow disk: a control group whose threads write to the disk of a folder a few times a second.

It needs the right to make control groups, and version 1 of them: there a group can take single threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.control_groups import control_group

_LIMIT = "blkio.throttle.write_iops_device"


@contextmanager
def slow_disk(folder: Path, writes_per_second: int) -> Iterator[Path]:
    """Make the group of a slow disk, and return its folder. Raises OSError if the system does not allow it."""
    with control_group("blkio") as group:
        (group / _LIMIT).write_text(f"{_disk_of(folder)} {writes_per_second}")
        yield group


def join(group: Path) -> None:
    """Make the disk slow for the calling thread."""
    (group / "tasks").write_text(str(threading.get_native_id()))


def _disk_of(folder: Path) -> str:
    """Return the numbers of the disk that has the folder, "major:minor". Raises OSError if it is on no disk."""
    device = folder.stat().st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    described = Path("/sys/dev/block", numbers).resolve(strict=True)
    if (described / "partition").exists():
        described = described.parent
    return (described / "dev").read_text().strip()
