"""Paths and URIs: how they are understood, and the filesystem that `pyarrow.fs` has for each."""

from __future__ import annotations

import os

from pyarrow import fs

from headgate.config import refuse_credentials
from headgate.errors import ConfigError


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


def locate(path: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of an absolute path or URI, and the path within it. Raises what `pyarrow.fs` raises."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return fs.LocalFileSystem(), path
    # Only the root goes through the URI parser: it would take the `?` of a glob for a query.
    authority, _, inside = rest.partition("/")
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    return filesystem, f"{root.rstrip('/')}/{inside}"


def brief(error: Exception) -> str:
    """The first line of what a library says: some add a page of places where they looked for theirs."""
    return str(error).partition("\n")[0]
