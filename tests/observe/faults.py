"""What makes a place of a job slow, from an onset on. A file marks the onset, since the functions run in other
processes.

A fault costs time for each row, so that larger batches do not make up for it.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.runtime.running_operator import current_operator
from tests import slow_disk

#: What a batch costs: `fault(folder, seconds a row, rows)`.
Fault = Callable[[Path, float, int], None]
#: How often a fault looks whether it is over, in seconds.
_SLICE = 0.05


def mark_onset(folder: Path) -> None:
    """Let the fault begin."""
    (folder / "onset").touch()


def mark_end(folder: Path) -> None:
    """Let the fault end at once: tasks that are threads would go on beside the next job."""
    (folder / "end").touch()
    (folder / "onset").unlink(missing_ok=True)


def mark_slow_disk(folder: Path, group: Path) -> None:
    """Let functions that write use the slow disk of this control group."""
    (folder / "slow disk").write_text(str(group))


def has_begun(folder: Path) -> bool:
    return (folder / "onset").exists()


def has_ended(folder: Path) -> bool:
    return (folder / "end").exists()


@dataclass(frozen=True)
class Slow:
    """A function of a job, which has the fault from the onset. A place without fault hands its rows on.

    `subtask` is the one that has the fault, or gets most rows, if it is only one.
    """

    folder: Path
    seconds: float
    fault: Fault | None
    subtask: int

    def __call__(self, batch: pa.RecordBatch, _info: object = None) -> pa.RecordBatch:
        self.on_rows(batch.num_rows)
        return batch

    def on_rows(self, rows: int) -> None:
        if self.fault is None or not has_begun(self.folder):
            return
        if isinstance(self.fault, OneSubtask) and not (current_operator() or "").endswith(f"[{self.subtask}]"):
            return
        self.fault(self.folder, self.seconds, rows)


def waits(folder: Path, seconds: float, rows: int) -> None:
    """Something outside answers slowly."""
    until = time.perf_counter() + seconds * rows
    while (left := until - time.perf_counter()) > 0 and not has_ended(folder):
        threading.Event().wait(min(left, _SLICE))


def computes(folder: Path, seconds: float, rows: int) -> None:
    """The function needs a processor for long."""
    until = time.thread_time() + seconds * rows
    while (now := time.thread_time()) < until and not has_ended(folder):
        while time.thread_time() < min(until, now + _SLICE):
            pass


def litters(folder: Path, seconds: float, rows: int) -> None:
    """The function makes objects in circles, and the collector runs all the time."""
    until = time.perf_counter() + seconds * rows
    while time.perf_counter() < until and not has_ended(folder):
        gc.collect()


def writes(folder: Path, seconds: float, rows: int) -> None:
    """The function waits for a disk: the slow one that `mark_slow_disk` named, or else the machine's."""
    with suppress(FileNotFoundError):
        slow_disk.join(Path((folder / "slow disk").read_text()))
    until = time.perf_counter() + seconds * rows
    with tempfile.TemporaryFile(dir=folder) as file:
        while time.perf_counter() < until and not has_ended(folder):
            file.write(bytes(1 << 16))
            os.fsync(file.fileno())


def stands(folder: Path, _seconds: float, _rows: int) -> None:
    """The function does not return for a minute."""
    waits(folder, 60.0, 1)


def lingers(folder: Path, _seconds: float, _rows: int) -> None:
    """Each call takes two seconds, with few or many rows."""
    waits(folder, 2.0, 1)


# `FlowSource` looks itself for these three: they change its rows, and cost no time.


def falls_silent(_folder: Path, _seconds: float, _rows: int) -> None:
    """A source has no more rows."""


def pours(_folder: Path, _seconds: float, _rows: int) -> None:
    """A source has as many rows as it is asked for."""


def swells(_folder: Path, _seconds: float, _rows: int) -> None:
    """A source has four times as many rows as before."""


# --- what a healthy job must bear without a finding


def pauses(folder: Path, _seconds: float, _rows: int) -> None:
    """One subtask waits for a second, once."""
    if _is_first(folder, "paused"):
        threading.Event().wait(1.0)


def bursts(folder: Path, _seconds: float, _rows: int) -> None:
    """A source sends nothing for two seconds, once, then all rows that are due."""
    if _is_first(folder, "burst"):
        threading.Event().wait(2.0)


def collects(folder: Path, _seconds: float, _rows: int) -> None:
    """The garbage collector runs once, over many objects."""
    if _is_first(folder, "collected"):
        circles = [[] for _ in range(500_000)]
        for circle in circles:
            circle.append(circle)
        del circles
        gc.collect()


def fails(folder: Path, _seconds: float, _rows: int) -> None:
    """The function raises once, and the job restarts."""
    if _is_first(folder, "failed"):
        raise OSError("the other side hung up")


# --- in one subtask


@dataclass(frozen=True)
class OneSubtask:
    """A fault of one subtask."""

    fault: Fault

    @property
    def __name__(self) -> str:
        return f"{self.fault.__name__} in one subtask"

    def __call__(self, folder: Path, seconds: float, rows: int) -> None:
        self.fault(folder, seconds, rows)


def _is_first(folder: Path, name: str) -> bool:
    """Return whether this is the first call with this name, among all processes."""
    try:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
