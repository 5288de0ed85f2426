"""Finds processes of Spark on this machine, for tests and demonstrations that kill them."""

from __future__ import annotations

from pathlib import Path


def executor_of(worker: int) -> int:
    """Return the process id of the executor that a Python worker belongs to.

    The worker's parent is PySpark's daemon, and the daemon's parent is the executor.
    """
    return _parent(_parent(worker))


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
