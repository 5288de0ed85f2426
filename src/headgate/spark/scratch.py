"""Temporary folders with a lock. Sessions that Headgate builds, and DataFrame rows, use such folders.

A killed program cannot remove its folders, so the next program removes them. A file lock shows whether a process uses a
folder: the system releases the lock when the last process that holds it ends. The lock of Spark's folder is held by the
program and its JVM.

Some network filesystems lock within one machine only. So the lock file names the machine that holds the lock, and
programs on other machines do not touch the folder.
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

#: Names of Spark's folders, as a pattern for `Path.glob`.
SPARK: Final = "headgate-spark-*"
#: Names of folders for rows.
ROWS: Final = f"headgate-rows-{'[0-9a-f]' * 12}"
#: The name of the lock file. Spark and Arrow skip names that begin with a dot.
_LOCK: Final = ".lock"
#: The file with a random number of this start of the machine.
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
#: The most bytes of a lock file.
_LONGEST: Final = 1 << 10
#: The locks that `hold` took: file descriptors by folder.
_held: dict[Path, int] = {}


class Scratch:
    """A new folder for Spark. This process holds the folder's lock. Each process that inherits the file descriptor
    `lock` holds it too."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=SPARK.removesuffix("*")))
        self.lock = _lock(self.folder)


def hold(folder: Path) -> None:
    """Lock a folder of this process until `unlock`.

    On a filesystem without locks the folder stays unlocked, and no program treats it as abandoned.
    """
    with contextlib.suppress(OSError):
        _held[folder] = _lock(folder)


def unlock(folder: Path) -> None:
    """Remove the lock of a folder that will be removed, or that must outlive the process. Do nothing if there is no
    lock."""
    if folder in _held:
        with contextlib.suppress(OSError):
            (folder / _LOCK).unlink()
        os.close(_held.pop(folder))


def remove_abandoned(names: str, within: Path) -> None:
    """Remove this user's folders that no process on this machine has locked. `names` is a pattern of their names.

    Other folders with such a name stay, for example those of other machines or users.
    """
    for folder in within.glob(names):
        with contextlib.suppress(OSError, ValueError):  # it is gone by now, is a link, or has no such lock
            if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
                _remove_if_abandoned(folder)


def _lock(folder: Path) -> int:
    """Lock a folder, and return the file descriptor. Raises OSError if that is impossible, and then changes nothing."""
    new = folder / f"{_LOCK}.new"  # no program looks for this name, so no program finds the file before it is locked
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
    """Remove a folder that no process uses. Raises OSError if a process uses it."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_here(json.loads(os.read(lock, _LONGEST))):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _machine() -> dict[str, str]:
    """Return the machine's name, and the id of its last start if the system has one.

    Containers on one machine have different names, but the same id, because they share one kernel.
    """
    try:
        return {"host": socket.gethostname(), "boot": _BOOT.read_text().strip()}
    except OSError:
        return {"host": socket.gethostname()}


def _is_here(there: object) -> bool:
    """Return whether the lock, whose content is `there`, was taken on this machine."""
    return isinstance(there, dict) and any(there.get(key) == value for key, value in _machine().items())
