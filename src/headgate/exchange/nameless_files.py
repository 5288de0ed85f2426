"""Create files without a name for the exchange: the kernel removes them however the process ends."""

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
    """Return the folder for this process's files: `spill_dir`, or the temporary folder if it is None or a URI.

    Only Spark can write to a URI.
    """
    return tempfile.gettempdir() if spill_dir is None or "://" in spill_dir else spill_dir


def check_folder(spill_dir: str | None) -> None:
    """Raise SpillError when no file can be created in a chosen folder.

    A job with such a folder fails before it starts, instead of at its first long record.
    """
    if spill_dir is not None:
        os.close(nameless_file(local_folder(spill_dir)))


def nameless_file(folder: str) -> int:
    """Create a file and return its descriptor, open to read and write. Raises SpillError.

    The file disappears with its last descriptor and mapping.
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

    All blocks are allocated here. A full disk therefore raises now, instead of a fault when the memory is written.
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
