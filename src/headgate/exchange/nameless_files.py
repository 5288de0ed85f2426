"""Files of the exchange: they have no name from the start, so nothing is left of them whatever ends the process."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile

import pyarrow as pa

from headgate.errors import SpillError

#: What file systems say that cannot make a file without a name.
_NEEDS_NAME = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


def local_folder(spill_dir: str | None) -> str:
    """Where files of this process go: `spill_dir`, unless it is none or a URI that only Spark can write to."""
    return tempfile.gettempdir() if spill_dir is None or "://" in spill_dir else spill_dir


def check_folder(spill_dir: str | None) -> None:
    """Raises SpillError when a chosen folder takes no files: a job is to end before it begins, and not with the first
    long record."""
    if spill_dir is not None:
        os.close(nameless_file(local_folder(spill_dir)))


def nameless_file(folder: str) -> int:
    """A descriptor of a new file, to read and write; the file is gone when the last descriptor and mapping are. Raises
    SpillError."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NEEDS_NAME:
            raise spill_error(folder, error) from error
    try:
        descriptor, path = tempfile.mkstemp(prefix="headgate-", dir=folder)
        os.unlink(path)
    except OSError as error:
        raise spill_error(folder, error) from error
    return descriptor


def mapped_file(size: int, folder: str) -> pa.Buffer:
    """Writable memory backed by a nameless file that lives as long as the buffer. Its blocks are taken now: a full disk
    is an error here, and never a fault when the memory is written. Raises SpillError."""
    descriptor = nameless_file(folder)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return pa.py_buffer(mmap.mmap(descriptor, size))
    except OSError as error:
        raise spill_error(folder, error) from error
    finally:
        os.close(descriptor)


def spill_error(folder: str, error: OSError) -> SpillError:
    """What to do about it depends on the folder alone."""
    return SpillError(
        f"a file in {folder} cannot be used: {error.strerror or error}; "
        "set the option spill_dir to a folder that is there, is writable and has room"
    )
