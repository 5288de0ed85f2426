"""Reading a dealt share of splits one after the other: the reader that all file sources have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headgate.connectors.connector import ReaderContext, SourceReader
from headgate.connectors.share import Share
from headgate.errors import ConfigError, SourceError
from headgate.quantities import size
from headgate.state import shapes

S = TypeVar("S")
#: Of one file: each takes memory everywhere.
MOST_SPLITS = 1 << 22
_FILE = shapes.row(shapes.count, shapes.optional(shapes.time))
_PREPARED = shapes.fields({"files": shapes.mapping(_FILE), "split_size": shapes.whole(1, (1 << 63) - 1)})


def check_split_size(value: int | str) -> int:
    """Bytes from a number or e.g. "64 mb". Raises ConfigError."""
    try:
        size_in_bytes = size(value)
    except ConfigError as error:
        raise ConfigError(f"split_size: {error.message}") from None
    if size_in_bytes < 1:
        raise ConfigError(f"split_size={value!r} must be at least 1 byte")
    return size_in_bytes


def prepared_files(prepared: Any) -> tuple[int, dict[str, Any]]:
    """The split size, and what `known_by` told of the files, of what a file source has in a checkpoint. Raises
    SourceError for anything else."""
    try:
        _PREPARED(prepared, "what the source had found")
    except ValueError as error:
        raise SourceError(f"{error}; start from another checkpoint") from None
    return prepared["split_size"], prepared["files"]


class SplitReader(SourceReader, Generic[S]):
    """Reads every `parallelism`-th of `splits`, from the subtask's own number on, each in order.

    `open_split` gives a split's batches, from a place in it on (None: its start), each with the place behind it; it is
    a generator, so that its files are closed when it is.
    """

    def __init__(self, splits: Sequence[S], open_split: Callable[[S, Any], Iterator[tuple[pa.RecordBatch, Any]]],
                 context: ReaderContext) -> None:  # fmt: skip
        self._open = open_split
        self._splits = splits
        self._share = Share(context)
        self._batches: Iterator[tuple[pa.RecordBatch, Any]] | None = None
        self.finished = self._share.number >= len(splits)

    def read(self) -> pa.RecordBatch | None:
        """The next batch, which may be empty; waits for no more than the file. None once all splits are read."""
        share = self._share
        while not self.finished:
            if self._batches is None:
                self.split = share.number
                self._batches = self._open(self._splits[share.number], share.place)
            for batch, share.place in self._batches:
                return batch
            self._batches = None
            share.advance()
            self.finished = share.number >= len(self._splits)
        return None

    def position(self) -> Any:
        """The split at hand, and the place in it."""
        return self._share.position()

    def split_name(self) -> str:
        """The split's number, and its file."""
        file = getattr(self._splits[self.split], "file", None) if self.split < len(self._splits) else None
        return super().split_name() if file is None else f"{super().split_name()} ({file.path})"

    def close(self) -> None:
        """Close the file that is open."""
        batches, self._batches = self._batches, None
        close = getattr(batches, "close", None)
        if close is not None:
            close()
