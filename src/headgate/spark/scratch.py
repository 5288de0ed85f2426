"""The temporary folder for whatever Spark writes in sessions that we build: locked while anyone needs it.

A program that is killed cannot remove its folder; the next one does. A file lock tells it that nobody is left there:
the system releases the lock when the last process that holds it ends, here the program and its JVM.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "headgate-spark-"
_LOCK = "lock"


class Scratch:
    """A new folder, locked by this process and by whoever inherits `lock`, a file descriptor."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        new = self.folder / f"{_LOCK}.new"  # under this name nobody looks for it
        self.lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        new.rename(self.folder / _LOCK)


def remove_abandoned() -> None:
    """Remove the folders of this user that nobody has locked any more. Whatever else has such a name stays."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is gone meanwhile, is a link, or has no lock
            if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
                _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    """Raises OSError when it is in use."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
