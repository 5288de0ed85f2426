"""The hidden files of a file sink: readers skip them until `show` makes each one visible in one step."""

from __future__ import annotations

import posixpath
from contextlib import suppress
from typing import Any, Final, Protocol

from pyarrow import fs

from headgate.filesystems import listing

#: How often a writer makes a folder that another job removes each time.
_ATTEMPTS: Final = 10


class UnfinishedFile(Protocol):
    """A hidden file that is being written through `stream`. Its name in checkpoints ends with `suffix`."""

    @property
    def stream(self) -> Any: ...

    @property
    def suffix(self) -> str: ...

    def close(self) -> None:
        """End the file. It stays hidden."""

    def abandon(self) -> None:
        """Ignore what is written from now on, because the file is not needed."""


class HiddenFiles(Protocol):
    """The hidden files below one folder. Paths are those of `pyarrow.fs`. Methods raise OSError."""

    #: How many files a subtask may write at the same time.
    most_open: int

    def check(self) -> None:
        """Make the folder, and check what can be checked before the first file."""

    def create(self, path: str) -> UnfinishedFile:
        """Begin a file."""

    def show(self, path: str) -> bool:
        """Make a file visible: its name loses the first `_`. Returns whether it is visible. Another program may do the
        same at the same time."""

    def entries(self) -> list[fs.FileInfo]:
        """List all files and folders, visible or hidden."""

    def delete(self, path: str) -> None:
        """Delete a file, visible or hidden. Raises FileNotFoundError if it is gone already."""


class RenamedFiles:
    """Hidden files on a filesystem with an atomic rename. Their names begin with `_`."""

    most_open = 64

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self._filesystem = filesystem
        self._root = root

    def check(self) -> None:
        self._filesystem.create_dir(self._root, recursive=True)

    def create(self, path: str) -> UnfinishedFile:
        """Make a file and its folder. Another job may remove the folder while it is still empty; the method then makes
        it again."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                self._filesystem.create_dir(posixpath.dirname(path), recursive=True)
                return _UnfinishedFile(self._filesystem.open_output_stream(path))
        raise FileNotFoundError(
            f"another program removed the folder {posixpath.dirname(path)} {_ATTEMPTS} times, each time after it was "
            "made"
        )

    def show(self, path: str) -> bool:
        folder, base = posixpath.split(path)
        shown = posixpath.join(folder, base.removeprefix("_"))
        if self._is_there(path):
            try:
                self._filesystem.move(path, shown)
                return True
            except OSError:
                if self._is_there(path):
                    raise  # otherwise another program has renamed the file
        return self._is_there(shown)

    def entries(self) -> list[fs.FileInfo]:
        return listing(self._filesystem, self._root, recursive=True)

    def delete(self, path: str) -> None:
        self._filesystem.delete_file(path)

    def _is_there(self, path: str) -> bool:
        return bool(self._filesystem.get_file_info(path).type == fs.FileType.File)


class _UnfinishedFile:
    suffix = ""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def close(self) -> None:
        self.stream.close()

    def abandon(self) -> None:
        pass  # a clean-up removes it, like the files of writers that were killed
