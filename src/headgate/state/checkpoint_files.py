"""Reads and writes the files of checkpoints, by path or URI.

Each file is written with a checksum. A reader refuses a file whose size or checksum differs.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa
import xxhash
from pyarrow import fs

from headgate.errors import CheckpointError, ConfigError, StorageError, UnusableState
from headgate.filesystems import (
    brief,
    create_private,
    listing,
    locate,
    make_for_files,
    opened,
    read_whole,
    sync,
    write_new,
    write_whole,
)
from headgate.state.checkpoint_metadata import OTHER, StateFile, WrittenFile

#: Bytes or Arrow buffers.
Payload = Iterable[bytes | memoryview | pa.Buffer]

_CHUNK: Final = 8 << 20
#: The most bytes that `probe` reads. Another program may have replaced the file by a large one.
_LONGEST_PROBE: Final = 1 << 10
#: Advice for the user; an error text ends with one of these.
_ROOM: Final = "free some space there, or choose another folder"
_RIGHTS: Final = "make it writable for the job's user on every machine, or choose another folder"
_REACH: Final = "see that every machine of the job can use that folder"
_FILE: Final = "part of that path is a file; choose another folder"
_UNKNOWN: Final = "give a path, or a URI of a filesystem that pyarrow knows"
_ADVICE: Final = {
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), _FILE),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _ROOM),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
}


@contextmanager
def storage_errors(path: str, done: str) -> Iterator[None]:
    """Turn a filesystem's exceptions into a CheckpointError that names the file and says what to do.

    `done` names the caller's action, such as "written". If the filesystem failed, the error is a StorageError, a
    subclass of CheckpointError: the file itself may be intact.
    """
    try:
        yield
    except FileNotFoundError as error:
        what = "every machine of the job must reach it by this path"
        raise CheckpointError(f"{path}: cannot be {done}, it does not exist; {what}") from error
    except pa.ArrowInvalid as error:
        raise CheckpointError(f"{path}: cannot be {done}: {brief(error)}; {_UNKNOWN}") from error
    except (OSError, pa.ArrowException) as error:
        advice = _ADVICE.get(getattr(error, "errno", None) or 0, _REACH)
        raise StorageError(f"{path}: cannot be {done}: {brief(error)}; {advice}") from error


def write_file(path: str, payload: Payload) -> StateFile:
    """Write a new file, and make the file's folder if the folder is missing.

    Raises CheckpointError. In that case no part of the file is left.
    """
    checksum, size = xxhash.xxh3_64(), 0
    with storage_errors(path, "written"):
        filesystem, inside = locate(path)
        make_for_files(filesystem, inside.rpartition("/")[0])
        try:
            create_private(filesystem, inside)
            with filesystem.open_output_stream(inside, compression=None) as stream:
                for buffer in payload:
                    stream.write(buffer)
                    checksum.update(buffer)
                    size += memoryview(buffer).nbytes
            sync(filesystem, inside)
        except BaseException:
            with suppress(OSError):
                filesystem.delete_file(inside)
            raise
    return StateFile(path, size, checksum.hexdigest())


def write_at_once(path: str, content: bytes) -> None:
    """Write a file atomically: readers see the whole file or no file. The folder must exist. Raises CheckpointError."""
    with storage_errors(path, "written"):
        write_whole(path, content)


def read_file(path: str, most: int) -> bytes:
    """Return the content of a file. Raises CheckpointError, also for a file of more than `most` bytes."""
    with _reading(path):
        return read_whole(path, most)


def read_state(file: WrittenFile) -> pa.Buffer:
    """Return the content of a file that a task wrote, after checking its size and checksum.

    Raises CheckpointError when the file is missing or changed, and UnusableState when it is larger than this
    machine's memory.
    """
    with _reading(file.path), opened(file.path) as stream:
        _compare_size(file, stream.size())
        if file.size > (memory := machine_memory()):
            raise UnusableState(
                f"{file.path}: has {file.size} bytes, and this machine has {memory} bytes of memory; use machines with "
                "more memory, or start from another checkpoint"
            )
        content: pa.Buffer = stream.read_buffer(file.size)
    _compare(file, content.size, xxhash.xxh3_64_hexdigest(content))
    return content


def verify_state(file: WrittenFile) -> None:
    """Check the size and checksum of a file, as `read_state` does.

    The function reads chunks of 8 MiB, so the file may be larger than the memory.
    """
    checksum, size = xxhash.xxh3_64(), 0
    with _reading(file.path), opened(file.path) as stream:
        _compare_size(file, stream.size())
        while (chunk := stream.read_buffer(_CHUNK)).size:
            checksum.update(chunk)
            size += chunk.size
    _compare(file, size, checksum.hexdigest())


def machine_memory() -> int:
    """Return this machine's physical memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn the exceptions of reading a file into a CheckpointError.

    This is `storage_errors`, and also handles ValueError, because another program may have written the file.
    """
    with storage_errors(path, "read"):
        try:
            yield
        except pa.ArrowInvalid:  # this is a ValueError too, but `storage_errors` gives better advice
            raise
        except ValueError as error:
            raise CheckpointError(f"{path}: cannot be read, {error}; {OTHER}") from None


def _compare_size(file: WrittenFile, size: int) -> None:
    if size != file.size:
        raise CheckpointError(f"{file.path}: has {size} bytes, and {file.size} were written: it is incomplete; {OTHER}")


def _compare(file: WrittenFile, size: int, checksum: str) -> None:
    _compare_size(file, size)
    if checksum != file.checksum:
        raise CheckpointError(f"{file.path}: was changed after it was written: its checksum differs; {OTHER}")


def require_files(files: Iterable[WrittenFile]) -> None:
    """Check that every file exists and has the size that was written. Raises CheckpointError.

    The function does not read the content.
    """
    for file in files:
        with storage_errors(file.path, "looked for"):
            filesystem, inside = locate(file.path)
            info = filesystem.get_file_info(inside)
        if info.type != fs.FileType.File:
            raise CheckpointError(
                f"{file.path}: was removed before its checkpoint was complete; only the job may remove its files"
            )
        if info.size != file.size:
            raise CheckpointError(f"{file.path}: has {info.size} bytes, and {file.size} were written: it is incomplete")


def probe(path: str) -> None:
    """Check that a folder can be used: create, read and remove the file `path` in it.

    Raises CheckpointError when one of these steps fails. Raises ConfigError when the filesystem replaces an existing
    file although it was asked to create a new one: two programs could then both own the folder.
    """
    with storage_errors(path, "written"):
        write_new(path, b"headgate")
        is_replaced = write_new(path, b"headgate")
    if read_file(path, _LONGEST_PROBE) != b"headgate":
        raise StorageError(f"{path}: the content differs from what was written; {_REACH}")
    remove_file(path)
    if is_replaced:
        raise ConfigError(
            f"{path.rpartition('/')[0]}: the service replaced an existing file instead of refusing to create it (it "
            "ignores If-None-Match), so two programs could both own this folder; use another service, or a local or "
            "shared disk"
        )


def listed(folder: str) -> list[fs.FileInfo]:
    """Return the entries of a folder. The list is empty if the folder does not exist. Raises CheckpointError."""
    with storage_errors(folder, "listed"):
        filesystem, inside = locate(folder)
        return listing(filesystem, inside)


def is_there(path: str) -> bool:
    """Return whether the file exists. Raises CheckpointError when the filesystem cannot say."""
    with storage_errors(path, "looked for"):
        filesystem, inside = locate(path)
        return bool(filesystem.get_file_info(inside).type == fs.FileType.File)


def remove_file(path: str) -> None:
    """Remove a file, if it exists. Raises CheckpointError."""
    with storage_errors(path, "removed"), suppress(FileNotFoundError):
        filesystem, inside = locate(path)
        filesystem.delete_file(inside)


def make_folder(path: str) -> None:
    """Make a folder and its missing parents. Raises CheckpointError."""
    with storage_errors(path, "made"):
        filesystem, inside = locate(path)
        above = [os.path.dirname(inside)]  # the folders that get a new entry, to be synced to disk
        if isinstance(filesystem, fs.LocalFileSystem):
            while not os.path.exists(above[-1]):
                above.append(os.path.dirname(above[-1]))
        make_for_files(filesystem, inside)
    for folder in above:
        with suppress(OSError):  # see `sync_folder`
            sync(filesystem, folder)


def remove_link(path: str) -> bool:
    """Remove `path` if it is a symbolic link on this machine; the link's target stays. Returns whether it was a link.

    Raises CheckpointError.
    """
    with storage_errors(path, "removed"):
        filesystem, inside = locate(path)
        is_link = isinstance(filesystem, fs.LocalFileSystem) and os.path.islink(inside)
        if is_link:
            os.unlink(inside)
        return is_link


def remove_folder(path: str) -> None:
    """Remove a folder with its content, if it exists. Raises CheckpointError."""
    with storage_errors(path, "removed"), suppress(FileNotFoundError):
        filesystem, inside = locate(path)
        filesystem.delete_dir(inside)
