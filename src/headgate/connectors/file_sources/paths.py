"""Paths, globs and folders as lists of files.

Covers local paths and every URI that `pyarrow.fs` knows; what is in the files is the connectors' matter.
"""

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

#: What a file source takes: a path, glob, folder or URI, or a list of them.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_GLOB = re.compile(r"[*?\[]")
_READ = "the checkpoint is of a job that read it"


def absolute_all(paths: Paths) -> tuple[str, ...]:
    """`absolute` of one path or of each in a list. Raises ConfigError for what is no path, and for an empty list."""
    if isinstance(paths, (str, bytes, os.PathLike)) or not isinstance(paths, Iterable):
        return (absolute(paths),)
    found = tuple(absolute(path) for path in paths)
    if not found:
        raise ConfigError("the list of paths is empty; give at least one path or glob")
    return found


def expand(paths: Sequence[str]) -> list[DataFile]:
    """The files that absolute paths, globs (`* ? [..] **`) and folders stand for, each once, in the order of names.

    Names that begin with `_` or `.` are not matched by globs and folders: they are files in the making. Raises
    SourceError for a path that stands for no file, and for a folder with sub-folders.
    """
    found: dict[str, DataFile] = {}
    for path in paths:
        with reading(path):
            files = _expand_one(*locate(path), path)
        found.update((file.path, file) for file in files)
    return [found[path] for path in sorted(found)]


def known_by(files: Iterable[DataFile]) -> dict[str, list[int | None]]:
    """What `expand_again` needs to know of files, as JSON has it."""
    return {file.path: [file.size, file.modified] for file in files}


def expand_again(paths: Sequence[str], known: Mapping[str, Sequence[int | None]]) -> list[DataFile]:
    """The files that `expand` once gave, by what `known_by` told of them, in that order; others that are there now are
    left out. Raises SourceError for one that is gone, has another size or was written since."""
    found = {file.path: file for file in expand(paths)}
    for path, (size, modified) in known.items():
        if path not in found:
            raise SourceError(f"{path}: is gone; {_READ}")
        file = found[path]
        if file.size != size:
            raise SourceError(f"{path}: has {file.size} bytes, not {size} as it had; {_READ}")
        if modified is not None and file.modified is not None and file.modified != modified:
            raise SourceError(
                f"{path}: was written at {_time(file.modified)}, and not at {_time(modified)} as it was; {_READ}, and "
                "may go on from the midst of it: put it back, with its time (cp -p)"
            )
    return [found[path] for path in known]


def _time(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC).isoformat()


def look(path: str) -> list[DataFile]:
    """The files that an absolute path, glob or folder stands for now, in the order of names; there may be none.

    Raises SourceError for a folder that is not there, or has sub-folders.
    """
    with reading(path):
        filesystem, inside = locate(path)
        if not _GLOB.search(inside) and filesystem.get_file_info(inside).type == fs.FileType.NotFound:
            raise SourceError(f"{path}: no such folder; make it before the job starts")
        return sorted(_found(filesystem, inside, path), key=lambda file: file.path)


def folder_above(inside: str) -> str:
    """What the paths of all files have in common, by the path or glob within a filesystem, with a slash at its end."""
    return _GLOB.split(inside, 1)[0].rpartition("/")[0] + "/"


def _expand_one(filesystem: fs.FileSystem, inside: str, path: str) -> list[DataFile]:
    files = _found(filesystem, inside, path)
    if not files and filesystem.get_file_info(inside).type == fs.FileType.Directory:
        raise SourceError(
            f"{path}: there is no file in this folder, those with names that begin with _ or . left out; put files "
            "there, or give a schema= to files(..., watch=True), which waits for them"
        )
    if not files:
        raise SourceError(f"{path}: no such file; check the path (relative paths are the driver's, from {os.getcwd()})")
    return files


def _found(filesystem: fs.FileSystem, inside: str, path: str) -> list[DataFile]:
    info = filesystem.get_file_info(inside)
    if info.type == fs.FileType.Directory:
        entries = _visible(filesystem, inside)
        nested = next((entry.path for entry in entries if entry.type == fs.FileType.Directory), None)
        if nested is not None:
            raise SourceError(f"{path}: has sub-folders ({nested}); say which files you mean, e.g. {path}/**/*")
    elif info.type == fs.FileType.NotFound and _GLOB.search(inside):
        root, *parts = inside.split("/")
        entries = list(_matches(filesystem, root or "/", parts, set()))
    else:
        entries = [] if info.type == fs.FileType.NotFound else [info]
    files = [entry for entry in entries if entry.type == fs.FileType.File]
    return [DataFile(filesystem, entry.path, entry.size, entry.mtime_ns) for entry in files]


def _matches(filesystem: fs.FileSystem, folder: str, parts: Sequence[str], followed: set[str]) -> Iterator[fs.FileInfo]:
    """What is under `folder` and fits the pattern's remaining parts. `followed` is where links to folders led that `**`
    has met: links can make a circle, so each place is entered through one of them only."""
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
    """Whether it is a link to where another one has led, or to a folder that it is in; else it is followed now."""
    if not isinstance(filesystem, fs.LocalFileSystem) or not os.path.islink(folder):
        return False
    place = os.path.realpath(folder)
    if place in followed or os.path.join(os.path.realpath(os.path.dirname(folder)), "").startswith(f"{place}/"):
        return True
    followed.add(place)
    return False


def _visible(filesystem: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    return [entry for entry in listing(filesystem, folder) if not entry.base_name.startswith(("_", "."))]


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns what the filesystem and the decoders raise into a SourceError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file here; every machine that runs tasks must reach it") from None
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: cannot be read: {brief(error)}") from error
