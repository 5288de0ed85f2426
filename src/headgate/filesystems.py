"""Paths and URIs: how they are understood, the filesystem that `pyarrow.fs` has for each, and whole small files."""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyarrow import fs

from headgate.errors import ConfigError
from headgate.option_kinds import refuse_credentials

#: Where what is written appears all at once, when it is closed.
OBJECT_STORES: Final = ("s3", "gcs", "abfs")
#: Filesystems that rename a file in one step, and refuse to rename over one that is there.
_RENAMING: Final = ("hdfs", "viewfs")
#: How often a folder is listed that another program makes and removes.
_LOOKS: Final = 9


def absolute(path: str | os.PathLike[str]) -> str:
    """The path as every process understands it: relative paths are the driver's; URIs stay as they are."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise ConfigError(f"{path!r} is not a path; give a path or URI: a non-empty string or a pathlib.Path")
    return refuse_credentials(text) if "://" in text else os.path.abspath(os.path.expanduser(text))


def make_private(filesystem: fs.FileSystem, folder: str) -> None:
    """Make a folder and those above it. On a local disk its owner alone may use what is made; a folder that exists
    keeps its mode."""
    if not isinstance(filesystem, fs.LocalFileSystem):
        filesystem.create_dir(folder, recursive=True)
        return
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            if not os.path.isdir(each):  # else another task was quicker
                raise


def make_for_files(filesystem: fs.FileSystem, folder: str) -> None:
    """Make a folder that files are to be written to, as `make_private` does. Object stores have no folders: a file's
    name is enough."""
    if filesystem.type_name not in OBJECT_STORES:
        make_private(filesystem, folder)


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of an absolute path or URI, and the path within it. Raises what `pyarrow.fs` raises."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return fs.LocalFileSystem(), path
    # Only the root goes through the URI parser: it would take the `?` of a glob for a query.
    authority, _, inside = rest.partition("/")
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    return filesystem, f"{root.rstrip('/')}/{inside}"


def listing(filesystem: fs.FileSystem, folder: str, recursive: bool = False) -> list[fs.FileInfo]:
    """What is in a folder now, `recursive` also in those below it; nothing if it is not there. Raises what the
    filesystem raises, and OSError for a file name that is not UTF-8."""
    selector = fs.FileSelector(folder, recursive=recursive, allow_not_found=True)
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):  # Arrow found no folder, and one that another program made meanwhile
            return _listed(filesystem, selector)
    return _listed(filesystem, selector)


def _listed(filesystem: fs.FileSystem, selector: fs.FileSelector) -> list[fs.FileInfo]:
    found: list[fs.FileInfo] = filesystem.get_file_info(selector)
    for each in found:
        try:
            each.path  # noqa: B018 - Arrow decodes it when it is asked for
        except UnicodeDecodeError as error:
            raise OSError(f"{selector.base_dir}: the file name {error.object!r} is not UTF-8; rename it") from None
    return found


def brief(error: Exception) -> str:
    """The first line of what a library says: some add a page of places where they looked for theirs."""
    return str(error).partition("\n")[0]


def opened(path: str) -> pa.NativeFile:
    """A file to read from. Raises ValueError for what is no file: a pipe would never end; and what the filesystem
    raises."""
    filesystem, inside = locate(path)
    if isinstance(filesystem, fs.LocalFileSystem) and not stat.S_ISREG(os.stat(inside).st_mode):
        raise ValueError("it is no regular file")
    return filesystem.open_input_file(inside)


def read_whole(path: str, most: int) -> bytes:
    """All of a file. Raises ValueError for one of more than `most` bytes, of which nothing is read, and for what is no
    file; and what the filesystem raises."""
    with opened(path) as stream:
        if (size := stream.size()) > most:
            raise ValueError(f"it has {size} bytes, and none that Headgate wrote has more than {most}")
        content: bytes = stream.read(size)
        return content


def write_new(path: str, content: bytes) -> bool:
    """Create a file with this content, unless a file of that name is there. Return whether this call created it: of
    several programs that try at the same moment exactly one does.

    Local disks create it with `O_EXCL`, HDFS renames without overwriting, S3 puts it on the condition that there is
    none (see `put_new`). Raises ConfigError for other filesystems, and what the filesystem raises.
    """
    filesystem, inside = locate(path)
    if isinstance(filesystem, fs.LocalFileSystem):
        return _create_local(inside, content)
    if filesystem.type_name in _RENAMING:
        return _rename_to_new(filesystem, inside, content)
    if filesystem.type_name == "s3":
        from headgate.s3 import put_new  # an optional dependency

        return put_new(inside, content, filesystem.region)
    raise ConfigError(
        f"{path}: {filesystem.type_name} cannot create a file only if it is not there, so two programs could "
        "both own this folder; use a local or shared disk, HDFS or S3"
    )


def write_whole(path: str, content: bytes) -> None:
    """Write a file that readers see as a whole or not at all, in place of one that may be there. The folder must be
    there. Raises what the filesystem raises."""
    filesystem, inside = locate(path)
    if filesystem.type_name in OBJECT_STORES:
        _write(filesystem, inside, content)
        return
    hidden = _beside(inside)
    try:
        create_private(filesystem, hidden)
        _write(filesystem, hidden, content)
        sync(filesystem, hidden)
        filesystem.move(hidden, inside)
    except BaseException:
        with suppress(OSError):
            filesystem.delete_file(hidden)
        raise
    sync_folder(filesystem, inside)


def create_private(filesystem: fs.FileSystem, path: str) -> None:
    """An empty file that its owner alone may use: Arrow keeps the mode of a file that it writes over."""
    if isinstance(filesystem, fs.LocalFileSystem):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Have the machine's disk hold what is in a file or folder now, so that power may fail; other filesystems see to
    that themselves when a file is closed."""
    if isinstance(filesystem, fs.LocalFileSystem):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(filesystem: fs.FileSystem, path: str) -> None:
    """The same for the folder of a file, and the one above. Not every filesystem can; then power that fails at once
    may lose the entry."""
    folder = path.rpartition("/")[0]
    with suppress(OSError):
        sync(filesystem, folder)
        sync(filesystem, folder.rpartition("/")[0])


def _create_local(path: str, content: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(fs.LocalFileSystem(), path)
    return True


def _rename_to_new(filesystem: fs.FileSystem, path: str, content: bytes) -> bool:
    hidden = _beside(path)
    _write(filesystem, hidden, content)
    try:
        filesystem.move(hidden, path)
    except OSError:
        with suppress(OSError):
            filesystem.delete_file(hidden)
        if filesystem.get_file_info(path).type == fs.FileType.NotFound:
            raise
        return False
    return True


def _write(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    with filesystem.open_output_stream(path, compression=None) as stream:
        stream.write(content)


def _beside(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}-{uuid.uuid4().hex}"
