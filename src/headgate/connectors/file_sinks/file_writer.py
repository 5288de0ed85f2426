"""The subtask's part of file sinks: it collects rows and writes them to hidden files."""

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
from headgate.connectors.file_sinks.file_formats import FileFormat, UnfitRowsError
from headgate.connectors.file_sinks.hidden_files import HiddenFiles, RenamedFiles
from headgate.connectors.file_sinks.partition_by import by_folder
from headgate.errors import ConfigError, SinkError
from headgate.filesystems import brief, listing
from headgate.quantities import size

#: The most rows of one folder in memory. If a folder has more, the writer writes them to the folder's file.
_ROWS_HELD = 65_536
#: The most bytes of all folders in memory. If there are more, the writer writes the rows of the folder with the most
#: bytes.
_BYTES_HELD = 16 << 20
#: The memory that a batch needs in addition to its data, in bytes.
_BYTES_PER_BATCH = 1 << 10
#: The size, in bytes, at which a writer ends a file and starts the next file, unless the user gives another size.
FILE_BYTES: Final = 128 << 20
#: The pattern of a run in a file's name.
_RUN: Final = re.compile("[A-Za-z0-9-]+")
#: The pattern of an epoch in a file's name.
_OWNER: Final = re.compile("o([0-9]+)-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The place and the format of the files of one run of one sink. Names of files are paths relative to `root`, with
    slashes.

    Other programs may resume a run from its checkpoints. `owner` is the epoch of this program. It is part of the names
    of the program's files, so these names differ from the names of other programs' files. `owner` is 0 before the
    program has claimed the results.
    """

    filesystem: fs.FileSystem
    root: str
    run: str
    owner: int
    format: FileFormat
    schema: pa.Schema
    partition_by: tuple[str, ...]
    #: The beginning of the names of unfinished files. Readers skip names that begin with `_`.
    prefix: str = "_part"
    #: The size, in bytes, at which a writer ends a file and starts the next file.
    file_bytes: int = FILE_BYTES
    #: Whether files are uploads to S3, which are hidden until they are completed.
    uploads: bool = False

    def __post_init__(self) -> None:
        """Raise SinkError for an impossible run. A damaged or forged checkpoint may hold any value."""
        if not isinstance(self.run, str) or not _RUN.fullmatch(self.run):
            raise SinkError(f"{self.root}: {self.run!r} is not a run of a sink; start from another checkpoint")

    @property
    def files(self) -> HiddenFiles:
        """The unfinished files."""
        if not self.uploads:
            return RenamedFiles(self.filesystem, self.root)
        from headgate.connectors.file_sinks.uploaded_files import UploadedFiles  # only jobs with S3 load it

        return UploadedFiles(self.filesystem, self.root, self.file_bytes)

    @property
    def file_schema(self) -> pa.Schema:
        """The columns in the files. The folder names hold the other columns."""
        return pa.schema([column for column in self.schema if column.name not in self.partition_by])

    def hidden_name(self, attempt: int, subtask: int, number: int) -> str:
        """Return the hidden name of a subtask's file.

        The name contains the attempt, because a task of an earlier attempt may still write files.
        """
        return f"{self.prefix}-{self.run}-o{self.owner}-{attempt}-{subtask:05d}-{number:05d}.{self.format.extension}"

    @property
    def empty_name(self) -> str:
        """The hidden name of the file that a job without rows writes."""
        return f"_part-{self.run}-empty.{self.format.extension}"

    def owns(self, name: str) -> bool:
        """Return whether this run wrote the file, hidden or visible."""
        return name.removeprefix("_").startswith(f"part-{self.run}-")

    def may_remove(self, name: str) -> bool:
        """Return whether this program or an older program wrote the file in this run."""
        owner = _OWNER.match(name.removeprefix("_").removeprefix(f"part-{self.run}-"))
        return self.owns(name) and (owner is None or int(owner[1]) <= self.owner)

    def path(self, name: Any) -> str:
        """Return the path of a file from the name that a writer of this run gave it.

        Raises SinkError for any other name. A forged checkpoint may hold any name, and the sink must not touch other
        files.
        """
        parts = name.split("/") if isinstance(name, str) else [""]
        if not self.owns(parts[-1]) or {"", ".", ".."} & set(parts):
            raise SinkError(
                f"{self.root}: {name!r} is not a file of this sink (run {self.run}); start from another checkpoint"
            )
        return posixpath.join(self.root, name)


def file_bytes(target_file_size: int | str) -> int:
    """Return the size that a user gives for files, in bytes. Raises ConfigError for an impossible one."""
    try:
        bytes_ = size(target_file_size)
    except ConfigError as error:
        raise ConfigError(f"target_file_size: {error.message}") from None
    if bytes_ < 1:
        raise ConfigError(f"target_file_size={target_file_size!r} must be at least 1 byte")
    return bytes_


def remove_if_empty(filesystem: fs.FileSystem, folder: str) -> None:
    """Remove a folder if it is empty.

    Another job may write into the folder at the same time. Some filesystems have a call that never removes a folder
    with files; the function uses this call if possible.
    """
    if isinstance(filesystem, fs.LocalFileSystem):
        with suppress(OSError):
            os.rmdir(folder)
    elif not listing(filesystem, folder):
        with suppress(FileNotFoundError):
            filesystem.delete_dir(folder)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of filesystems and encoders into a SinkError, which names the file."""
    try:
        yield
    except UnfitRowsError as error:
        raise SinkError(f"{path}: {error}") from None
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"{path}: cannot be written: {brief(error)}; check free space and permissions there") from error


class HiddenFile:
    """An unfinished file with a hidden name. Its methods raise SinkError for every failure."""

    def __init__(self, target: Target, name: str, schema: pa.Schema) -> None:
        self._path = posixpath.join(target.root, name)
        with writing(self._path):
            self._file = target.files.create(self._path)
            self._writer = target.format.open(self._file.stream, schema)
        self.name = f"{name}{self._file.suffix}"

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        with writing(self._path):
            self._writer.write_table(table)

    def size(self) -> int:
        """Return the number of bytes written."""
        return int(self._file.stream.tell())

    def close(self) -> None:
        """Write the end of the file, and close the file."""
        with writing(self._path):
            self._writer.close()
            self._file.close()

    def abandon(self) -> None:
        """Close the file in any state. Raises no errors."""
        for step in (self._file.abandon, self._writer.close, self._file.close):
            with suppress(OSError, pa.ArrowException):
                step()


@dataclass(slots=True)
class _Held:
    """The rows of one folder that are in memory."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    nbytes: int = 0

    def add(self, batch: pa.RecordBatch) -> int:
        """Add a batch, and return the memory that it needs, in bytes."""
        cost = int(batch.nbytes) + _BYTES_PER_BATCH
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.nbytes += cost
        return cost


class FileWriter(SinkWriter):
    """The writer of a subtask's rows. `flush` and `finish` return the hidden names of its finished files."""

    def __init__(self, target: Target, attempt: int, subtask: int) -> None:
        self._target = target
        self._attempt = attempt
        self._subtask = subtask
        self._schema = target.file_schema
        self._held: dict[str, _Held] = {}
        self._bytes_held = 0
        #: The open files by folder. The file that was written to most recently comes last.
        self._open: dict[str, HiddenFile] = {}
        self._done: list[str] = []
        self._number = 0
        self._most_open = target.files.most_open

    def write(self, batch: pa.RecordBatch) -> None:
        """Collect the rows, and write the rows of each folder that has enough of them. Raises SinkError."""
        for folder, rows in self._divided(batch):
            held = self._held.setdefault(folder, _Held())
            self._bytes_held += held.add(rows)
            if held.rows >= _ROWS_HELD:
                self._write_out(folder)
        while self._bytes_held > _BYTES_HELD:
            self._write_out(max(self._held, key=lambda folder: self._held[folder].nbytes))

    def flush(self, checkpoint: int) -> list[str] | None:
        """Write all rows, and end all files.

        Returns the names of the files that ended since the last call, relative to the sink's folder. Returns None
        without files.
        """
        for folder in list(self._held):
            self._write_out(folder)
        for folder in list(self._open):
            self._end(folder)
        done, self._done = self._done, []
        return done or None

    def finish(self) -> list[str] | None:
        """Write all rows, and return the names of the files as `flush` does."""
        return self.flush(0)

    def close(self) -> None:
        """Close the files that a failure left open."""
        while self._open:
            self._open.popitem()[1].abandon()

    def _divided(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the folders of a batch, and the rows that go into each."""
        return by_folder(batch, self._target.partition_by)

    def _write_out(self, folder: str) -> None:
        """Write a folder's rows to its file."""
        held = self._held.pop(folder)
        self._bytes_held -= held.nbytes
        file = self._file(folder)
        file.write(pa.Table.from_batches(held.batches, self._schema))
        if file.size() >= self._target.file_bytes:
            self._end(folder)

    def _file(self, folder: str) -> HiddenFile:
        """Return a folder's open file, or a new one."""
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= self._most_open:
                self._end(next(iter(self._open)))
            name = posixpath.join(folder, self._target.hidden_name(self._attempt, self._subtask, self._number))
            self._number += 1
            file = HiddenFile(self._target, name, self._schema)
        self._open[folder] = file
        return file

    def _end(self, folder: str) -> None:
        self._open[folder].close()
        self._done.append(self._open.pop(folder).name)
