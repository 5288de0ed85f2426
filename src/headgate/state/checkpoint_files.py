"""The files of checkpoints, by path or URI: written with a checksum, read only as they were written."""

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
#: Bytes; other programs may write to the same folder.
_LONGEST_PROBE: Final = 1 << 10
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
    """Turns what a filesystem raises into a CheckpointError that names the file and says what to do: StorageError
    where nothing can be said of the file itself."""
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
    """Write a new file, and its folder where that is not there; nothing is left of it if that fails. Raises
    CheckpointError."""
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
    """Write a file that is there as a whole or not at all. Its folder must be there. Raises CheckpointError."""
    with storage_errors(path, "written"):
        write_whole(path, content)


def read_file(path: str, most: int) -> bytes:
    """All of a file. Raises CheckpointError, also for one of more than `most` bytes, of which nothing is read."""
    with _reading(path):
        return read_whole(path, most)


def read_state(file: WrittenFile) -> pa.Buffer:
    """What a task wrote. Raises CheckpointError when the file is gone or not as it was written, UnusableState when it
    does not fit into this machine's memory."""
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
    """Like `read_state`, of any size in little memory."""
    checksum, size = xxhash.xxh3_64(), 0
    with _reading(file.path), opened(file.path) as stream:
        _compare_size(file, stream.size())
        while (chunk := stream.read_buffer(_CHUNK)).size:
            checksum.update(chunk)
            size += chunk.size
    _compare(file, size, checksum.hexdigest())


def machine_memory() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """As `storage_errors`, for a file that may not be one of a checkpoint's at all."""
    with storage_errors(path, "read"):
        try:
            yield
        except pa.ArrowInvalid:  # a ValueError, and of the filesystem
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
    """Raise CheckpointError unless all of them are there, with their sizes; their content is not read."""
    for file in files:
        with storage_errors(file.path, "looked for"):
            filesystem, inside = locate(file.path)
            info = filesystem.get_file_info(inside)
        if info.type != fs.FileType.File:
            raise CheckpointError(f"{file.path}: was removed before its checkpoint was complete; leave it to the job")
        if info.size != file.size:
            raise CheckpointError(f"{file.path}: has {info.size} bytes, and {file.size} were written: it is torn")


def probe(path: str) -> None:
    """Find out whether a folder can be used: create a file there, read it and remove it. Raises CheckpointError, and
    ConfigError where no file can be created only if it is not there."""
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
    """What is in a folder now; nothing if it is not there. Raises CheckpointError."""
    with storage_errors(folder, "listed"):
        filesystem, inside = locate(folder)
        return listing(filesystem, inside)


def is_there(path: str) -> bool:
    """Whether there is such a file. Raises CheckpointError when that cannot be known."""
    with storage_errors(path, "looked for"):
        filesystem, inside = locate(path)
        return bool(filesystem.get_file_info(inside).type == fs.FileType.File)


def remove_file(path: str) -> None:
    """Also when it is not there. Raises CheckpointError."""
    with storage_errors(path, "removed"), suppress(FileNotFoundError):
        filesystem, inside = locate(path)
        filesystem.delete_file(inside)


def make_folder(path: str) -> None:
    """With those above it, unless they are there. Raises CheckpointError."""
    with storage_errors(path, "made"):
        filesystem, inside = locate(path)
        above = [os.path.dirname(inside)]  # folders that get an entry
        if isinstance(filesystem, fs.LocalFileSystem):
            while not os.path.exists(above[-1]):
                above.append(os.path.dirname(above[-1]))
        make_for_files(filesystem, inside)
    for folder in above:
        with suppress(OSError):  # see `sync_folder`
            sync(filesystem, folder)


def remove_link(path: str) -> bool:
    """A link on this machine, not what it leads to; whether it was one. Raises CheckpointError."""
    with storage_errors(path, "removed"):
        filesystem, inside = locate(path)
        is_link = isinstance(filesystem, fs.LocalFileSystem) and os.path.islink(inside)
        if is_link:
            os.unlink(inside)
        return is_link


def remove_folder(path: str) -> None:
    """With all that is in it, also when it is not there. Raises CheckpointError."""
    with storage_errors(path, "removed"), suppress(FileNotFoundError):
        filesystem, inside = locate(path)
        filesystem.delete_dir(inside)
