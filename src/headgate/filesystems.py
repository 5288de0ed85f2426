"""Resolve paths and URIs, find the filesystem of `pyarrow.fs` for each, and read and write small files whole."""

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

#: Filesystems where a file appears all at once, when its writer closes it.
OBJECT_STORES: Final = ("s3", "gcs", "abfs")
#: The URI schemes of filesystems that sinks can write to: those that rename atomically, and S3, where completing an
#: upload is atomic. See also `write_new`.
WRITABLE: Final = ("file", "hdfs", "viewfs", "s3")
#: Filesystems that rename a file in one step, and refuse to rename over a file that exists.
_RENAMING: Final = ("hdfs", "viewfs")
#: Names that only Hadoop and Spark have for a filesystem, and its name here.
_HADOOPS: Final = {"s3a": "s3", "s3n": "s3"}
#: Seconds in which Google Cloud Storage must answer. Arrow's default is 15 minutes.
_GCS_PATIENCE: Final = 60
#: How many times `listing` tries again while another program makes and removes the folder.
_LOOKS: Final = 9


def absolute(path: str | os.PathLike[str]) -> str:
    """Return the path in a form that means the same in every process: absolute, with `~` expanded. Keep URIs.

    Raises ConfigError for a value that is no path, and for a URI with credentials.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if (
        not isinstance(text, str)
        or not text
        or "\0" in text
        or any("\ud800" <= character <= "\udfff" for character in text)
    ):
        raise ConfigError(f"{path!r} is not a path; give a path or URI: a non-empty string or a pathlib.Path")
    return refuse_credentials(text) if "://" in text else os.path.abspath(os.path.expanduser(text))


def make_private(filesystem: fs.FileSystem, folder: str) -> None:
    """Make a folder and the missing folders above it.

    On a local disk only the owner may use the new folders. A folder that exists keeps its mode.
    """
    if not isinstance(filesystem, fs.LocalFileSystem):
        filesystem.create_dir(folder, recursive=True)
        return
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):  # a folder here was made by another task in the meantime
                raise


def make_for_files(filesystem: fs.FileSystem, folder: str) -> None:
    """Make a folder for new files, as `make_private` does. Do nothing in an object store, which has no folders."""
    if filesystem.type_name not in OBJECT_STORES:
        make_private(filesystem, folder)


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of an absolute path or URI, and the path within it. Raises what `pyarrow.fs` raises."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return fs.LocalFileSystem(), path
    # Only the root goes through the URI parser, because the parser would read the `?` of a glob as the start of a
    # query.
    authority, _, inside = rest.partition("/")
    if scheme in _HADOOPS:
        raise pa.ArrowInvalid(f"{scheme}:// is a name of Hadoop; write {_HADOOPS[scheme]}://")
    limit = f"?retry_limit_seconds={_GCS_PATIENCE}" if scheme in ("gs", "gcs") else ""
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/{limit}")
    # A URI with only the host of an Azure account has no root, because its path begins with the container.
    return filesystem, f"{root.rstrip('/')}/{inside}" if root else inside


def is_within(path: str, folder: str) -> bool:
    """Return whether an absolute path or URI is `folder` or lies below it. Resolves links on a local disk.

    A URI without a host may mean any host.
    """
    (scheme, host, inside), (other_scheme, other_host, above) = _place(path), _place(folder)
    is_one_host = host == other_host or not host or not other_host
    return scheme == other_scheme and is_one_host and os.path.join(inside, "").startswith(os.path.join(above, ""))


def _place(path: str) -> tuple[str, str, str]:
    """Return the scheme, the host and the path of an absolute path or URI. A local path has no scheme and no host."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return "", "", os.path.realpath(path)
    host, _, inside = rest.partition("/")
    if scheme == "file":
        return "", "", os.path.realpath(f"/{inside}")
    return scheme, host, os.path.normpath(f"/{inside}")


def listing(filesystem: fs.FileSystem, folder: str, recursive: bool = False) -> list[fs.FileInfo]:
    """Return the entries of a folder. With `recursive`, return also the entries of the folders below it.

    A folder that does not exist has no entries. Raises what the filesystem raises, and OSError for a file name that is
    not UTF-8.
    """
    selector = fs.FileSelector(folder, recursive=recursive, allow_not_found=True)
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):  # another program made the folder after Arrow had not found it
            return _listed(filesystem, selector)
    return _listed(filesystem, selector)


def _listed(filesystem: fs.FileSystem, selector: fs.FileSelector) -> list[fs.FileInfo]:
    entries: list[fs.FileInfo] = filesystem.get_file_info(selector)
    for entry in entries:
        try:
            entry.path  # noqa: B018 - Arrow decodes the name only when the attribute is read
        except UnicodeDecodeError as error:
            raise OSError(f"{selector.base_dir}: the file name {error.object!r} is not UTF-8; rename it") from None
    return entries


def brief(error: Exception) -> str:
    """Return the first line of a library's message. Some libraries add a page of folders in which they searched."""
    return str(error).partition("\n")[0]


def opened(path: str) -> pa.NativeFile:
    """Open a file to read from it.

    Raises what the filesystem raises. Raises ValueError if it is not a regular file: the content of a pipe would never
    end.
    """
    filesystem, inside = locate(path)
    if isinstance(filesystem, fs.LocalFileSystem) and not stat.S_ISREG(os.stat(inside).st_mode):
        raise ValueError("it is not a regular file")
    return filesystem.open_input_file(inside)


def read_whole(path: str, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes.

    Raises ValueError for a larger file, without reading it, and for a path that is no file. Raises what the filesystem
    raises.
    """
    with opened(path) as stream:
        if (size := stream.size()) > most:
            raise ValueError(f"it has {size} bytes, and Headgate writes at most {most}, so it is another file")
        content: bytes = stream.read(size)
        return content


def write_new(path: str, content: bytes) -> bool:
    """Create a file with this content, unless a file of that name exists. Return whether this call created it.

    If several programs try at the same moment, exactly one of them creates the file. Local disks create it with
    `O_EXCL`, HDFS renames without overwriting, and S3 has conditional writes (see `put_new`). Raises ConfigError for
    other filesystems, and what the filesystem raises.
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
        f"{path}: {filesystem.type_name} cannot create a file only if it does not exist, so two programs could "
        "both own this folder; use a local or shared disk, HDFS or S3"
    )


def write_whole(path: str, content: bytes) -> None:
    """Write or replace a file atomically: readers see the old content or all of the new content.

    The folder must exist. Raises the filesystem's errors.
    """
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
    """Create an empty local file that only its owner may use. It keeps this mode when Arrow writes it. For other
    filesystems, do nothing."""
    if isinstance(filesystem, fs.LocalFileSystem):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def sync(filesystem: fs.FileSystem, path: str) -> None:
    """Write the content of a local file or folder to the disk, so that a loss of power cannot destroy the content.

    For other filesystems, do nothing: they store a file when its writer closes the file.
    """
    if isinstance(filesystem, fs.LocalFileSystem):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(filesystem: fs.FileSystem, path: str) -> None:
    """Write the folder of a file, and the folder above, to the disk, so that a loss of power cannot remove the file.

    Some filesystems cannot do this. The function then does nothing.
    """
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
    hidden = _beside(path)  # a renamed file is whole when it appears under its final name
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
    """Return a new hidden name in the same folder."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}-{uuid.uuid4().hex}"
