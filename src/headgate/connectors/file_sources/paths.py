"""Lists the files of paths, globs and folders, on this machine or on a filesystem that `pyarrow.fs` knows by URI."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa
from pyarrow import fs

from headgate.connectors.data_file import DataFile
from headgate.errors import ConfigError, SourceError
from headgate.filesystems import absolute, brief, listing, locate

#: The argument of a file source: a path, glob, folder or URI, or a list of these.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_GLOB = re.compile(r"[*?\[]")
#: The reason why a job cannot resume without a file, for errors.
_WAS_READ = "the job of the checkpoint read it"


def absolute_all(paths: Paths) -> tuple[str, ...]:
    """Return the absolute path of one path, or of each path in a list.

    Raises ConfigError for an empty list, and for a value that is not a path.
    """
    if isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable):
        return (absolute(paths),)
    absolute_paths = tuple(absolute(path) for path in paths)
    if not absolute_paths:
        raise ConfigError("the list of paths is empty; give at least one path or glob")
    return absolute_paths


def expand(paths: Sequence[str]) -> list[DataFile]:
    """List the files of absolute paths, globs (`* ? [..] **`) and folders. Each file comes once. The files are
    in the order of their own paths.

    Globs and folders leave out names that begin with `_` or `.`, because a writer may not have finished these files.
    Raises SourceError for a path without a file, and for a folder with subfolders.
    """
    by_path: dict[str, DataFile] = {}
    for path in paths:
        with reading(path):
            files = _expand_one(*locate(path), path)
        by_path.update((file.path, file) for file in files)
    return [by_path[path] for path in sorted(by_path)]


def known_by(files: Iterable[DataFile]) -> dict[str, list[int | None]]:
    """Return the size and the time of each file, by path, as JSON values. `expand_again` recognizes the files by
    these values."""
    return {file.path: [file.size, file.modified] for file in files}


def expand_again(paths: Sequence[str], known: Mapping[str, Sequence[int | None]]) -> list[DataFile]:
    """List the files that an earlier `expand` returned, in the same order, without files that were added later.

    `known` is the result of `known_by` for these files. Raises SourceError for a file that is gone, has another size,
    or was written after the call of `expand`.
    """
    present = {file.path: file for file in expand(paths)}
    for path, (size, modified) in known.items():
        if path not in present:
            raise SourceError(f"{path}: is gone; {_WAS_READ}: put it back, or start without the checkpoint")
        check_unchanged(present[path], size, modified)
    return [present[path] for path in known]


def check_unchanged(file: DataFile, size: int | None, modified: int | None) -> None:
    """Raise SourceError if a file has another size or time than in the checkpoint. A time of None is not known."""
    if file.size != size:
        raise SourceError(
            f"{file.path}: has {file.size} bytes now, and had {size}; {_WAS_READ}: put the old file back, or start "
            "without the checkpoint"
        )
    if modified is not None and file.modified is not None and file.modified != modified:
        raise SourceError(
            f"{file.path}: was written at {_time(file.modified)}, after {_time(modified)}; {_WAS_READ}, and may resume "
            "in the middle of it: put the old file back with its time (cp -p), or start without the checkpoint"
        )


def _time(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat()


def look(path: str) -> list[DataFile]:
    """List the files that an absolute path, glob or folder has now, in the order of their paths. The list may be empty.

    Raises SourceError for a folder that does not exist or has subfolders.
    """
    with reading(path):
        filesystem, inside = locate(path)
        if not _GLOB.search(inside) and filesystem.get_file_info(inside).type == fs.FileType.NotFound:
            raise SourceError(f"{path}: no such folder; make it before the job starts")
        return sorted(_list(filesystem, inside, path), key=lambda file: file.path)


def folder_above(inside: str) -> str:
    """Return the folder that contains all files of a path or glob, with a slash at its end.

    `inside` is the path or glob within its filesystem.
    """
    return _GLOB.split(inside, 1)[0].rpartition("/")[0] + "/"


def _expand_one(filesystem: fs.FileSystem, inside: str, path: str) -> list[DataFile]:
    """List the files of one path. Raises SourceError if there are no files."""
    files = _list(filesystem, inside, path)
    if not files and filesystem.get_file_info(inside).type == fs.FileType.Directory:
        raise SourceError(
            f"{path}: there is no file in this folder (names that begin with _ or . do not count); put files there, or "
            "wait for them with files(..., watch=True, schema=...)"
        )
    if not files:
        raise SourceError(
            f"{path}: no such file; check the path (relative paths start at the driver's folder, {os.getcwd()})"
        )
    return files


def _list(filesystem: fs.FileSystem, inside: str, path: str) -> list[DataFile]:
    """List the files of one path, glob or folder. Raises SourceError for a folder with subfolders."""
    info = filesystem.get_file_info(inside)
    if info.type == fs.FileType.Directory:
        entries = _visible(filesystem, inside)
        nested = next((entry.path for entry in entries if entry.type == fs.FileType.Directory), None)
        if nested is not None:
            raise SourceError(f"{path}: has subfolders ({nested}); give a glob, for example {path}/**/* for all files")
    elif info.type == fs.FileType.NotFound and _GLOB.search(inside):
        root, *parts = inside.split("/")
        entries = list(_matches(filesystem, root or "/", parts, set()))
    else:
        entries = [] if info.type == fs.FileType.NotFound else [info]
    files = [entry for entry in entries if entry.type == fs.FileType.File]
    return [DataFile(filesystem, entry.path, entry.size, entry.mtime_ns) for entry in files]


def _matches(filesystem: fs.FileSystem, folder: str, parts: Sequence[str], followed: set[str]) -> Iterator[fs.FileInfo]:
    """Yield the files and folders below `folder` that match the remaining parts of the pattern.

    `followed` has the targets of the links to folders that `**` has followed. Links can form a circle. The search
    therefore enters each target through one link only: the first one in the order of names, on every machine.
    """
    literal = 0
    while literal < len(parts) and not _GLOB.search(parts[literal]):
        literal += 1
    folder = "/".join([folder.rstrip("/"), *parts[:literal]]) or "/"
    if literal == len(parts):
        yield from (info for info in [filesystem.get_file_info(folder)] if info.type != fs.FileType.NotFound)
        return
    pattern, rest = parts[literal], parts[literal + 1 :]
    if pattern == "**":
        yield from _matches(filesystem, folder, rest, followed)
    for entry in _visible(filesystem, folder):
        if pattern == "**":
            if entry.type == fs.FileType.Directory and not _was_followed(filesystem, entry.path, followed):
                yield from _matches(filesystem, entry.path, parts[literal:], followed)
        elif fnmatch.fnmatchcase(entry.base_name, pattern):
            if not rest:
                yield entry
            elif entry.type == fs.FileType.Directory:
                yield from _matches(filesystem, entry.path, rest, followed)


def _was_followed(filesystem: fs.FileSystem, folder: str, followed: set[str]) -> bool:
    """Return whether the search must not enter a link, because it has entered the target before, or the target contains
    the link.

    If the search may enter the link, the function adds the link's target to `followed`.
    """
    if not isinstance(filesystem, fs.LocalFileSystem) or not os.path.islink(folder):
        return False
    target = os.path.realpath(folder)
    if target in followed or os.path.join(os.path.realpath(os.path.dirname(folder)), "").startswith(f"{target}/"):
        return True
    followed.add(target)
    return False


def _visible(filesystem: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    visible = [entry for entry in listing(filesystem, folder) if not entry.base_name.startswith(("_", "."))]
    return sorted(visible, key=lambda entry: entry.base_name)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn errors of filesystems and decoders into a SourceError, which names the file."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file here; every machine that runs tasks must reach it") from None
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: cannot be read: {brief(error)}") from error
