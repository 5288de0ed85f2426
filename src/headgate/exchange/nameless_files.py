"""Create files without a name for the exchange. The kernel removes such a file when the process ends in any way."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile

import pyarrow as pa

from headgate.errors import SpillError

#: The error codes of file systems that cannot make a file without a name.
_NEEDS_NAME = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


def local_folder(spill_dir: str | None) -> str:
    """Return the folder for this process's files.

    It is `spill_dir`, or the system's temporary folder if `spill_dir` is None or a URI. Only Spark can write to a URI.
    """
    if spill_dir is not None and "://" not in spill_dir:
        return spill_dir
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # no folder accepts Python's test file: the disk is full
        return os.environ.get("TMPDIR") or "/tmp"


def check_folder(spill_dir: str | None) -> None:
    """Raise SpillError if the job sets `spill_dir` and no file can be created in its `local_folder`.

    With this check, a job with such a folder fails before it starts, and not at its first long record.
    """
    if spill_dir is not None:
        os.close(nameless_file(local_folder(spill_dir)))


def nameless_file(folder: str) -> int:
    """Create a nameless file and return its descriptor, open to read and write. Raises SpillError.

    The file disappears when its last descriptor and its last mapping are closed.
    """
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
    """Return `size` bytes of writable memory in a nameless file that lives as long as the buffer. Raises SpillError.

    The file gets all its disk blocks here, so that a full disk raises SpillError now. Otherwise a full disk would crash
    the process later, when it writes to the memory.
    """
    descriptor = nameless_file(folder)
    try:
        os.posix_fallocate(descriptor, 0, size)
        return pa.py_buffer(mmap.mmap(descriptor, size))
    except OSError as error:
        raise spill_error(folder, error) from error
    finally:
        os.close(descriptor)


def spill_error(folder: str, error: OSError) -> SpillError:
    """Return the SpillError for a failed operation on a file in `folder`."""
    return SpillError(
        f"a file in {folder} cannot be used: {error.strerror or error}; "
        "set the option spill_dir to a folder that exists, is writable and has room"
    )
