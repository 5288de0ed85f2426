"""`WatchedFiles`: a source without end. It reads the files that come into a folder."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.line_source import BAD, LineSource
from headgate.connectors.file_sources.parquet_source import ParquetSource
from headgate.connectors.file_sources.paths import check_unchanged, folder_above, look
from headgate.errors import ConfigError, SourceError
from headgate.filesystems import absolute, locate
from headgate.quantities import seconds
from headgate.state import shapes


class WatchedFiles(Source):
    """A source of the files that come into a folder; see `hg.sources.files`.

    All subtasks list the folder, at the same times. The name of a file decides which subtask reads the file. A
    subtask without a file to read does not hold back the watermark.
    """

    bounded = False

    def __init__(self, path: str | os.PathLike[str], source: LineSource | ParquetSource, interval: float | str) -> None:
        try:
            self._interval = seconds(interval)
        except ConfigError as error:
            raise ConfigError(f"files: interval: {error.message}") from None
        if self._interval <= 0:
            raise ConfigError(f"files: interval={interval!r} must be above 0")
        self._path = absolute(path)
        self._source = source
        self.schema = source.schema
        self.sides = source.sides

    def prepare(self) -> None:
        """Check that the folder exists. Raises SourceError."""
        look(self._path)

    def prepared(self) -> Any:
        """Return the path, because positions name files relative to it."""
        return {"path": self._path}

    def restore(self, prepared: Any) -> None:
        """Raise SourceError if the job of the checkpoint watched another path. All files of the new path would count as
        unread."""
        self.prepare()
        if prepared["path"] != self._path:
            raise SourceError(
                f"{self._path}: the job of the checkpoint watched {prepared['path']}, and knows files by their "
                "names there; give the same path, written in the same way (if the folder was moved, put a link in its "
                "old place), or start without the checkpoint"
            )

    def files(self) -> Sequence[DataFile]:
        """List the files that the path has now."""
        return look(self._path)

    def check_position(self, position: Any) -> None:
        """Raise ValueError if no reader can return `position`: the files that are read, and other files with places."""
        file = (shapes.path_below, shapes.count, self._source.place)
        dated = shapes.row(*file, shapes.optional(shapes.time))

        def begun(value: Any, place: str) -> None:
            """Checkpoints of older versions have no times."""
            (shapes.row(*file) if isinstance(value, list | tuple) and len(value) == len(file) else dated)(value, place)

        fields = {"read": shapes.items(shapes.path_below), "begun": shapes.items(begun)}
        shapes.fields(fields)(position, "the position")

    def reading(self, columns: Collection[str]) -> WatchedFiles:
        """Return a source that reads only these columns of Parquet files, or this source for other files."""
        return self._of(self._source.reading(columns)) if isinstance(self._source, ParquetSource) else self

    def with_dictionaries(self, columns: Collection[str]) -> WatchedFiles:
        """Return a source that gives these columns of texts with the dictionaries of Parquet files, or this source."""
        return self._of(self._source.with_dictionaries(columns)) if isinstance(self._source, ParquetSource) else self

    def _of(self, source: ParquetSource) -> WatchedFiles:
        other = copy(self)
        other._source, other.schema = source, source.schema
        return other

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's files."""
        return _WatchReader(self._path, self._source, self._interval, context)


class _WatchReader(SourceReader):
    """The reader of one subtask's files in a watched folder."""

    def __init__(self, path: str, source: LineSource | ParquetSource, interval: float, context: ReaderContext) -> None:
        self._path = path
        self._source = source
        self._interval = interval
        self._context = context
        self._filesystem, inside = locate(path)
        #: The folder to which the names of files are relative, with a slash at its end.
        self._root = folder_above(inside)
        #: The names of the files that are read to their end.
        self._read: list[str] = []
        #: The other files, the current file first: name, size when found, the place up to which the file is read, and
        #: the time when found, or None.
        self._waiting: deque[tuple[str, int, Any, int | None]] = deque()
        for position in context.positions or ():
            self._read += filter(self._is_mine, position["read"])
            begun = [(*file, None)[:4] for file in position["begun"]]
            self._waiting.extend(file for file in begun if self._is_mine(file[0]))
        self._check_waiting_files()
        self._seen = {*self._read, *(name for name, *_ in self._waiting)}
        self._batches: Iterator[tuple[pa.RecordBatch, Any]] | None = None
        self._look_at = context.started_at
        self._name = ""

    def _check_waiting_files(self) -> None:
        """Raise SourceError if the path no longer has a file that is partly read in the checkpoint, or has another one.

        Without this check, a forged checkpoint could name any file. Text may have been appended to a file meanwhile,
        which the reader leaves out. Nothing can be appended to a Parquet file.
        """
        present = {file.path.removeprefix(self._root): file for file in look(self._path)} if self._waiting else {}
        may_grow = not isinstance(self._source, ParquetSource)
        for name, size, _, modified in self._waiting:
            if name not in present:
                raise SourceError(
                    f"{self._root}{name}: is no longer a file of {self._path}, and the job of the checkpoint has read "
                    "a part of it; put it back"
                )
            if not may_grow or present[name].size <= size:
                check_unchanged(present[name], size, modified)

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, which may be empty. Return None if all files are read and it is not time to list the
        folder."""
        while self._waiting or self._look_for_more():
            name, size, place, modified = self._waiting[0]
            if self._batches is None:
                self.split += 1
                self._name = name
                file = DataFile(self._filesystem, self._root + name, size)
                self._batches = self._source.read_file(file, place, self._context.sides.get(BAD))
            for batch, place in self._batches:
                self._waiting[0] = name, size, place, modified
                return batch
            self._batches = None
            self._waiting.popleft()
            self._read.append(name)
        return None

    def position(self) -> Any:
        """Return the files that are read, and the partly read files with their places. `read` finds all other files
        again."""
        return {"read": list(self._read), "begun": [file for file in self._waiting if file[2] is not None]}

    def next_read(self) -> float | None:
        return self._look_at

    def split_name(self) -> str:
        """Return the name of the current file, and its number among the files of this reader."""
        return f"{super().split_name()} ({self._name})" if self._name else "no file"

    def _look_for_more(self) -> bool:
        """List the folder if it is time to do so. Returns whether there is a file to read."""
        now = self._context.clock()
        # If `now` is even earlier, the clock was set back: then list the folder at once.
        if self._look_at - self._interval <= now < self._look_at:
            return False
        started_at = self._context.started_at
        self._look_at = started_at + ((now - started_at) // self._interval + 1) * self._interval
        for file in look(self._path):
            name = file.path.removeprefix(self._root)
            if file.size and name not in self._seen:
                self._seen.add(name)
                if self._is_mine(name):
                    self._waiting.append((name, file.size, None, file.modified))
        self.has_split = bool(self._waiting)
        return self.has_split

    def _is_mine(self, name: str) -> bool:
        number = zlib.crc32((self._root + name).encode())
        return number % self._context.parallelism == self._context.subtask

    def close(self) -> None:
        """Close the file that is open."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
