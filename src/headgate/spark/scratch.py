"""Temporary folders that are locked while anyone needs them: those for whatever Spark writes in sessions that we build,
and those for rows of DataFrames.

A program that is killed cannot remove its folders; the next one does. A file lock tells it that nobody is left there:
the system releases the lock when the last process that holds it ends, of Spark's folder the program or its JVM.

Some network filesystems lock within one machine only. So the file says which machine has it locked, and programs on
others leave the folder alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

#: Names of folders, as `Path.glob` takes them.
SPARK: Final = "headgate-spark-*"
ROWS: Final = f"headgate-rows-{'[0-9a-f]' * 12}"
#: Spark and Arrow pass over names that begin with a dot.
_LOCK: Final = ".lock"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: Nobody writes a longer one.
_LONGEST: Final = 1 << 10
#: Locks of folders that one process alone needs: their descriptors, by folder.
_held: dict[Path, int] = {}


class Scratch:
    """A new folder for Spark, locked by this process and by whoever inherits `lock`, a file descriptor."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=SPARK.removesuffix("*")))
        self.lock = _lock(self.folder)


def hold(folder: Path) -> None:
    """Lock a folder of this process until `unlock`. Where there are no locks nobody finds it abandoned, either."""
    with contextlib.suppress(OSError):
        _held[folder] = _lock(folder)


def unlock(folder: Path) -> None:
    """Of a folder that is removed now, or is to outlive the process: nothing of the lock is left in it. Does nothing
    for one that is not held."""
    if folder in _held:
        with contextlib.suppress(OSError):
            (folder / _LOCK).unlink()
        os.close(_held.pop(folder))


def remove_abandoned(names: str, within: Path) -> None:
    """Remove the folders of this user and machine that nobody has locked any more. Whatever else has such a name
    stays."""
    for folder in within.glob(names):
        with contextlib.suppress(OSError, ValueError):  # it is gone meanwhile, is a link, or has no such lock
            if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
                _remove_if_abandoned(folder)


def _lock(folder: Path) -> int:
    """Raises OSError where that cannot be; then the folder is as it was."""
    new = folder / f"{_LOCK}.new"  # under this name nobody looks for it
    lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, json.dumps(_machine()).encode())
        new.rename(folder / _LOCK)
    except OSError:
        os.close(lock)
        new.unlink(missing_ok=True)
        raise
    return lock


def _remove_if_abandoned(folder: Path) -> None:
    """Raises OSError when it is in use."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_here(json.loads(os.read(lock, _LONGEST))):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _machine() -> dict[str, str]:
    """The machine's name, and its start where the system says which: containers have names of their own, and one
    kernel."""
    try:
        return {"host": socket.gethostname(), "boot": _BOOT.read_text().strip()}
    except OSError:
        return {"host": socket.gethostname()}


def _is_here(there: object) -> bool:
    """Whether the lock was taken on this machine."""
    return isinstance(there, dict) and any(there.get(key) == value for key, value in _machine().items())
