"""Processes of Spark's on this machine, for who kills them on purpose."""

from __future__ import annotations

from pathlib import Path


def executor_of(worker: int) -> int:
    """The process of the executor that a Python worker is of: its parent is PySpark's daemon, whose parent that is."""
    return _parent(_parent(worker))


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
