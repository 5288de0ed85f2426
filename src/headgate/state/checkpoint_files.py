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
#: Bytes that are read of a probe: another program may have written a large file of that name.
_LONGEST_PROBE: Final = 1 << 10
#: What to do, for the end of an error.
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

    `done` is what the caller tries, such as "written". StorageError, a subclass, means that the filesystem failed,
    and that the file itself may be good.
    """
    try:
        yield
    except FileNotFoundError as error:
        what = "every machine of the job must reach it by this path"
        raise CheckpointError(f"{path}: cannot be {done}, it is not there; {what}") from error
    except pa.ArrowInvalid as error:
        raise CheckpointError(f"{path}: cannot be {done}: {brief(error)}; {_UNKNOWN}") from error
    except (OSError, pa.ArrowException) as error:
        advice = _ADVICE.get(getattr(error, "errno", None) or 0, _REACH)
        raise StorageError(f"{path}: cannot be {done}: {brief(error)}; {advice}") from error


def write_file(path: str, payload: Payload) -> StateFile:
    """Write a new file, and make its folder if it is missing. Raises CheckpointError, and leaves no part of the file
    then."""
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
    """Write a file atomically: readers see all of it or none. Its folder must exist. Raises CheckpointError."""
    with storage_errors(path, "written"):
        write_whole(path, content)


def read_file(path: str, most: int) -> bytes:
    """Return the content of a file. Raises CheckpointError; a file of more than `most` bytes is refused unread."""
    with _reading(path):
        return read_whole(path, most)


def read_state(file: WrittenFile) -> pa.Buffer:
    """Return the content of a file that a task wrote, checked against its size and checksum.

    Raises CheckpointError when the file is missing or changed, and UnusableState when it is larger than this
    machine's memory.
    """
    with _reading(file.path), opened(file.path) as stream:
        _compare_size(file, stream.size())
        if file.size > (memory := machine_memory()):
            raise UnusableState(
                f"{file.path}: has {file.size} bytes, and this machine has {memory} bytes of memory; use machines with "
                "more, or start from another checkpoint"
            )
        content: pa.Buffer = stream.read_buffer(file.size)
    _compare(file, content.size, xxhash.xxh3_64_hexdigest(content))
    return content


def verify_state(file: WrittenFile) -> None:
    """Check a file as `read_state` does, in chunks of 8 MiB, so that a file of any size fits in memory."""
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
    """Act as `storage_errors`, and turn a ValueError into a CheckpointError too: the file may be foreign."""
    with storage_errors(path, "read"):
        try:
            yield
        except pa.ArrowInvalid:  # a ValueError too, but `storage_errors` knows what to do
            raise
        except ValueError as error:
            raise CheckpointError(f"{path}: cannot be read, {error}; {OTHER}") from None


def _compare_size(file: WrittenFile, size: int) -> None:
    if size != file.size:
        raise CheckpointError(f"{file.path}: has {size} bytes, and {file.size} were written: it is torn; {OTHER}")


def _compare(file: WrittenFile, size: int, checksum: str) -> None:
    _compare_size(file, size)
    if checksum != file.checksum:
        raise CheckpointError(f"{file.path}: was changed after it was written, its checksum is another; {OTHER}")


def require_files(files: Iterable[WrittenFile]) -> None:
    """Raise CheckpointError unless every file exists and has its size. The content is not read."""
    for file in files:
        with storage_errors(file.path, "looked for"):
            filesystem, inside = locate(file.path)
            info = filesystem.get_file_info(inside)
        if info.type != fs.FileType.File:
            raise CheckpointError(f"{file.path}: was removed before its checkpoint was complete; leave it to the job")
        if info.size != file.size:
            raise CheckpointError(f"{file.path}: has {info.size} bytes, and {file.size} were written: it is torn")


def probe(path: str) -> None:
    """Check that a folder can be used: create the file `path` in it, read it and remove it.

    Raises CheckpointError when one of these fails. Raises ConfigError when the filesystem replaces an existing file
    although it was asked to create a new one: two programs could then both own the folder.
    """
    with storage_errors(path, "written"):
        write_new(path, b"headgate")
        is_replaced = write_new(path, b"headgate")
    if read_file(path, _LONGEST_PROBE) != b"headgate":
        raise StorageError(f"{path}: has other bytes than were written; {_REACH}")
    remove_file(path)
    if is_replaced:
        raise ConfigError(
            f"{path.rpartition('/')[0]}: the service replaced a file that it was to create only if there is none "
            "(it ignores If-None-Match), so two programs could both own this folder; use another service, or a "
            "local or shared disk"
        )


def listed(folder: str) -> list[fs.FileInfo]:
    """Return the entries of a folder; none if it does not exist. Raises CheckpointError."""
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
        above = [os.path.dirname(inside)]  # folders that get a new entry, which must reach the disk
        if isinstance(filesystem, fs.LocalFileSystem):
            while not os.path.exists(above[-1]):
                above.append(os.path.dirname(above[-1]))
        make_for_files(filesystem, inside)
    for folder in above:
        with suppress(OSError):  # see `sync_folder`
            sync(filesystem, folder)


def remove_link(path: str) -> bool:
    """Remove a symbolic link on this machine, but not its target. Returns whether the path was a link. Raises
    CheckpointError."""
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
