"""A folder that files are put into: a source without end."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.line_source import BAD, LineSource
from headgate.connectors.file_sources.parquet_source import ParquetSource
from headgate.connectors.file_sources.paths import folder_above, look
from headgate.errors import ConfigError, SourceError
from headgate.filesystems import absolute, locate
from headgate.quantities import seconds
from headgate.state import shapes


class WatchedFiles(Source):
    """See `hg.sources.files`. Subtasks look for themselves; a file falls to one by its name alone, so
    it does not matter who sees it first. They look at the same moments. One that finds no file of its own when it looks
    holds back no watermark until it does."""

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
        """Raises SourceError if there is no such folder."""
        look(self._path)

    def prepared(self) -> Any:
        """The path, below which files have their names in positions."""
        return {"path": self._path}

    def restore(self, prepared: Any) -> None:
        """Raises SourceError if another path was watched: its files would be new ones here."""
        self.prepare()
        if prepared["path"] != self._path:
            raise SourceError(
                f"{self._path}: the job watched {prepared['path']}, and knows the files that it has read by their "
                "names there; give the same path, written in the same way (where a folder was moved, put a link in its "
                "old place), or start without the checkpoint"
            )

    def files(self) -> Sequence[DataFile]:
        """What is there now."""
        return look(self._path)

    def check_position(self, position: Any) -> None:
        """Raises ValueError."""
        begun = shapes.row(shapes.path_below, shapes.count, self._source.place)
        fields = {"read": shapes.items(shapes.path_below), "begun": shapes.items(begun)}
        shapes.fields(fields)(position, "the position")

    def reader(self, context: ReaderContext) -> SourceReader:
        """Reads the files that fall to this subtask."""
        return _WatchReader(self._path, self._source, self._interval, context)


class _WatchReader(SourceReader):
    def __init__(self, path: str, source: LineSource | ParquetSource, interval: float, context: ReaderContext) -> None:
        self._path = path
        self._source = source
        self._interval = interval
        self._context = context
        self._filesystem, inside = locate(path)
        #: Where the names of files begin.
        self._root = folder_above(inside)
        self._read: list[str] = []
        #: Names of files, each with its size when it was found and the place up to which it is read; the first is at
        #: hand.
        self._waiting: deque[tuple[str, int, Any]] = deque()
        for position in context.positions or ():
            self._read += filter(self._is_mine, position["read"])
            self._waiting.extend((name, size, place) for name, size, place in position["begun"] if self._is_mine(name))
        self._refuse_strangers()
        self._seen = {*self._read, *(name for name, _, _ in self._waiting)}
        self._batches: Iterator[tuple[pa.RecordBatch, Any]] | None = None
        self._look_at = context.started_at
        self._name = ""

    def _refuse_strangers(self) -> None:
        """Raises SourceError for a file that was begun, by the checkpoint, and is none of those to be read."""
        there = {file.path.removeprefix(self._root) for file in look(self._path)} if self._waiting else set()
        for name, _, _ in self._waiting:
            if name not in there:
                raise SourceError(
                    f"{self._root}{name}: is no file of {self._path} any more, and the checkpoint is of a job that had "
                    "begun to read it; put it back"
                )

    def read(self) -> pa.RecordBatch | None:
        """The next batch of what was found, which may be empty; None when it is all read and it is not yet time to look
        again."""
        while self._waiting or self._look_for_more():
            name, size, place = self._waiting[0]
            if self._batches is None:
                self.split += 1
                self._name = name
                file = DataFile(self._filesystem, self._root + name, size)
                self._batches = self._source.read_file(file, place, self._context.sides.get(BAD))
            for batch, place in self._batches:
                self._waiting[0] = name, size, place
                return batch
            self._batches = None
            self._waiting.popleft()
            self._read.append(name)
        return None

    def position(self) -> Any:
        """The files that are read, and the places in those that are begun; what else is there is found again."""
        return {"read": list(self._read), "begun": [file for file in self._waiting if file[2] is not None]}

    def next_read(self) -> float | None:
        return self._look_at

    def split_name(self) -> str:
        """The file's number among those that it has read, and its name."""
        return f"{super().split_name()} ({self._name})" if self._name else "no file"

    def _look_for_more(self) -> bool:
        """List the folder, if it is time to; returns whether there is a file to read."""
        now = self._context.clock()
        if self._look_at - self._interval <= now < self._look_at:  # earlier than that: the clock was set back
            return False
        started_at = self._context.started_at
        self._look_at = started_at + ((now - started_at) // self._interval + 1) * self._interval
        for file in look(self._path):
            name = file.path.removeprefix(self._root)
            if file.size and name not in self._seen:
                self._seen.add(name)
                if self._is_mine(name):
                    self._waiting.append((name, file.size, None))
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
