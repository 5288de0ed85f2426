"""A folder that files are put into: a source without end."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from headgate.connectors.base import ReaderContext, Source, SourceReader
from headgate.connectors.files import DataFile, look
from headgate.connectors.line_source import BAD, LineSource
from headgate.connectors.parquet_source import ParquetSource
from headgate.errors import ConfigError
from headgate.filesystems import absolute
from headgate.quantities import seconds


class WatchedFiles(Source):
    """See `headgate.connectors.sources.files`. Subtasks look for themselves; a file falls to one by its name alone, so
    it does not matter who sees it first."""

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

    def files(self) -> Sequence[DataFile]:
        """What is there now."""
        return look(self._path)

    def reader(self, context: ReaderContext) -> SourceReader:
        """Reads the files that fall to this subtask."""
        return _WatchReader(self._path, self._source, self._interval, context)


class _WatchReader(SourceReader):
    def __init__(self, path: str, source: LineSource | ParquetSource, interval: float, context: ReaderContext) -> None:
        self._path = path
        self._source = source
        self._interval = interval
        self._context = context
        self._seen: set[str] = set()
        self._waiting: deque[DataFile] = deque()
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._look_at = context.started_at

    def read(self) -> pa.RecordBatch | None:
        """The next batch of what was found, which may be empty; None when it is all read and it is not yet time to look
        again."""
        while True:
            for batch in self._batches:
                return batch
            if not self._waiting and not self._found_more():
                return None
            self.split += 1
            self._batches = self._source.read_file(self._waiting.popleft(), self._context.sides.get(BAD))

    def next_read(self) -> float | None:
        return self._look_at

    def _found_more(self) -> bool:
        now = self._context.clock()
        if now < self._look_at:
            return False
        self._look_at = now + self._interval
        for file in look(self._path):
            if file.size and file.path not in self._seen:
                self._seen.add(file.path)
                if zlib.crc32(file.path.encode()) % self._context.parallelism == self._context.subtask:
                    self._waiting.append(file)
        return bool(self._waiting)

    def close(self) -> None:
        """Close the file that is open."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
