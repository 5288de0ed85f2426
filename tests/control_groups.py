"""Control groups of version 1 for tests: they limit the disk of single threads, or the processors of processes.

They need the right to make such groups.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def control_group(controller: str) -> Iterator[Path]:
    """Make a group of a controller ("cpu", "blkio"), and return its folder. Whoever is still in it at the end leaves.

    The number of this process is in the group's name. Raises OSError if the system does not allow it.
    """
    group = _ROOT / controller / f"headgate-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    """Move the threads that are left in the group out of it, and remove it."""
    deadline = time.monotonic() + 10
    while True:
        for thread in (group / "tasks").read_text().split():
            with suppress(OSError):  # it has ended
                (group.parent / "tasks").write_text(thread)
        try:
            return group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
