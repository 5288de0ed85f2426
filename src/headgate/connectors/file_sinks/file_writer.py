"""Files in a folder as a sink, a subtask's side: gathering rows and writing them to hidden files."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from headgate.connectors.connector import SinkWriter
from headgate.connectors.file_sinks.file_formats import FileFormat
from headgate.connectors.file_sinks.partition_by import by_folder
from headgate.errors import SinkError
from headgate.filesystems import brief, listing

#: A folder's rows are written together once there are so many ...
_ROWS_HELD = 65_536
#: ... or, whichever folder has the most, once all rows held take so many bytes. A batch costs some even if it is tiny.
_BYTES_HELD = 16 << 20
_BYTES_PER_BATCH = 1 << 10
#: The size at which a file is ended and the next begun.
_FILE_BYTES = 128 << 20
#: Files open at once; with more folders than that, a folder's next rows go to a new file.
_FILES_OPEN = 64
#: How often a folder is made that another job removes.
_TRIES: Final = 10
#: What is part of files' names.
_RUN: Final = re.compile("[A-Za-z0-9-]+")
_OWNER: Final = re.compile("o([0-9]+)-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where and how one run of one sink writes. Paths below `root` are relative and have slashes.

    A run goes on in other programs, from its checkpoints; `owner`, the program's epoch, tells the files of one from
    those of the others. It is 0 before the program has taken over.
    """

    filesystem: fs.FileSystem
    root: str
    run: str
    owner: int
    format: FileFormat
    schema: pa.Schema
    partition_by: tuple[str, ...]
    #: What names of files in the making begin with; `_` hides them.
    prefix: str = "_part"

    def __post_init__(self) -> None:
        """Raises SinkError: a checkpoint may say anything."""
        if not isinstance(self.run, str) or not _RUN.fullmatch(self.run):
            raise SinkError(f"{self.root}: {self.run!r} is no run of a sink; start from another checkpoint")

    @property
    def file_schema(self) -> pa.Schema:
        """The columns within the files; the others are in the folders' names."""
        return pa.schema([column for column in self.schema if column.name not in self.partition_by])

    def hidden_name(self, attempt: int, subtask: int, number: int) -> str:
        """The name of a subtask's file in the making. An attempt that was given up may still be writing."""
        return f"{self.prefix}-{self.run}-o{self.owner}-{attempt}-{subtask:05d}-{number:05d}.{self.format.extension}"

    @property
    def empty_name(self) -> str:
        """The hidden name of the file that a job without rows leaves."""
        return f"_part-{self.run}-empty.{self.format.extension}"

    def owns(self, name: str) -> bool:
        """Whether this run wrote the file of that name, hidden or visible."""
        return name.removeprefix("_").startswith(f"part-{self.run}-")

    def may_remove(self, name: str) -> bool:
        """Whether this run wrote it, and no program that came after this one."""
        found = _OWNER.match(name.removeprefix("_").removeprefix(f"part-{self.run}-"))
        return self.owns(name) and (found is None or int(found[1]) <= self.owner)

    def path(self, name: Any) -> str:
        """Of a file that a writer of this run told of. Raises SinkError for anything else: a checkpoint may say that,
        and what is somebody else's is not touched."""
        parts = name.split("/") if isinstance(name, str) else [""]
        if not self.owns(parts[-1]) or {"", ".", ".."} & set(parts):
            raise SinkError(f"{self.root}: {name!r} is no file that this sink wrote; start from another checkpoint")
        return posixpath.join(self.root, name)


def remove_if_empty(filesystem: fs.FileSystem, folder: str) -> None:
    """Another job may be about to write there, so where there is a removal that spares full folders, use it."""
    if isinstance(filesystem, fs.LocalFileSystem):
        with suppress(OSError):
            os.rmdir(folder)
    elif not listing(filesystem, folder):
        with suppress(FileNotFoundError):
            filesystem.delete_dir(folder)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns what the filesystem and the encoders raise into a SinkError that names the file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"{path}: cannot be written: {brief(error)}; check free space and permissions there") from error


class HiddenFile:
    """A file being written. Raises SinkError for whatever fails."""

    def __init__(self, target: Target, name: str, schema: pa.Schema) -> None:
        self.name = name
        self._path = posixpath.join(target.root, name)
        with writing(self._path):
            self._stream = _create(target.filesystem, self._path)
            self._writer = target.format.open(self._stream, schema)

    def write(self, table: pa.Table) -> None:
        with writing(self._path):
            self._writer.write_table(table)

    def size(self) -> int:
        """Bytes written."""
        return int(self._stream.tell())

    def close(self) -> None:
        """End the file: afterwards it is whole."""
        with writing(self._path):
            self._writer.close()
            self._stream.close()

    def abandon(self) -> None:
        """Let go of it, whatever state it is in."""
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()


def _create(filesystem: fs.FileSystem, path: str) -> pa.NativeFile:
    """A new file. Its folder is made, again if another job removes the empty one meanwhile."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            filesystem.create_dir(posixpath.dirname(path), recursive=True)
            return filesystem.open_output_stream(path)
    raise FileNotFoundError(f"{posixpath.dirname(path)} was made {_TRIES} times, and each time it was removed")


@dataclass(slots=True)
class _Held:
    """A folder's rows that are not written yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Take the batch and return what it costs (bytes)."""
        cost = int(batch.nbytes) + _BYTES_PER_BATCH
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.nbytes += cost
        return cost


class FileWriter(SinkWriter):
    """Writes a subtask's rows; `flush` and `finish` return the hidden files' names."""

    def __init__(self, target: Target, attempt: int, subtask: int) -> None:
        self._target = target
        self._attempt = attempt
        self._subtask = subtask
        self._schema = target.file_schema
        self._held: dict[str, _Held] = {}
        self._bytes_held = 0
        self._open: dict[str, HiddenFile] = {}  # the one written last is last
        self._done: list[str] = []
        self._number = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Hold the rows, and write those of folders that have enough. Raises SinkError."""
        for folder, rows in by_folder(batch, self._target.partition_by):
            held = self._held.setdefault(folder, _Held())
            self._bytes_held += held.add(rows)
            if held.rows >= _ROWS_HELD:
                self._write_out(folder)
        while self._bytes_held > _BYTES_HELD:
            self._write_out(max(self._held, key=lambda folder: self._held[folder].nbytes))

    def flush(self, checkpoint: int) -> list[str] | None:
        """Write what is held and end all files; the names, below the sink's folder, of those ended since the last time,
        None for none."""
        for folder in list(self._held):
            self._write_out(folder)
        for folder in list(self._open):
            self._end(folder)
        done, self._done = self._done, []
        return done or None

    def finish(self) -> list[str] | None:
        """As `flush`, for good."""
        return self.flush(0)

    def close(self) -> None:
        """After a failure files may be open still."""
        while self._open:
            self._open.popitem()[1].abandon()

    def _write_out(self, folder: str) -> None:
        held = self._held.pop(folder)
        self._bytes_held -= held.nbytes
        file = self._file(folder)
        file.write(pa.Table.from_batches(held.batches, self._schema))
        if file.size() >= _FILE_BYTES:
            self._end(folder)

    def _file(self, folder: str) -> HiddenFile:
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= _FILES_OPEN:
                self._end(next(iter(self._open)))
            name = posixpath.join(folder, self._target.hidden_name(self._attempt, self._subtask, self._number))
            self._number += 1
            file = HiddenFile(self._target, name, self._schema)
        self._open[folder] = file
        return file

    def _end(self, folder: str) -> None:
        self._open[folder].close()
        self._done.append(self._open.pop(folder).name)
