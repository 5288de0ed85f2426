"""`SplitReader`: the reader of all file sources. It reads its share of the splits one after the other."""

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
#: The most splits of one file. Each split needs memory on the driver and in every task.
MOST_SPLITS = 1 << 22
_FILE = shapes.row(shapes.count, shapes.optional(shapes.time))
_PREPARED = shapes.fields({"files": shapes.mapping(_FILE), "split_size": shapes.whole(1, (1 << 63) - 1)})


def check_split_size(value: int | str) -> int:
    """Return a split size in bytes, from a number or from a text such as "64 mb". Raises ConfigError for any other
    value."""
    try:
        size_in_bytes = size(value)
    except ConfigError as error:
        raise ConfigError(f"split_size: {error.message}") from None
    if size_in_bytes < 1:
        raise ConfigError(f"split_size={value!r} must be at least 1 byte")
    return size_in_bytes


def prepared_files(prepared: Any) -> tuple[int, dict[str, Any]]:
    """Return the split size and the files (as `known_by` returned them) that a file source stored in a checkpoint.

    Raises SourceError if `prepared` is anything else.
    """
    try:
        _PREPARED(prepared, "what the source stored in the checkpoint")
    except ValueError as error:
        raise SourceError(f"{error}; start from another checkpoint") from None
    return prepared["split_size"], prepared["files"]


class SplitReader(SourceReader, Generic[S]):
    """A reader of the subtask's share of `splits`: split i for subtask i mod parallelism.

    `open_split` yields the batches of a split from a place on. The place None is the start of the split. Each batch
    comes with the place after it. `open_split` is a generator: closing the generator closes the file.
    """

    def __init__(self, splits: Sequence[S], open_split: Callable[[S, Any], Iterator[tuple[pa.RecordBatch, Any]]],
                 context: ReaderContext) -> None:  # fmt: skip
        self._open = open_split
        self._splits = splits
        self._share = Share(context)
        self._batches: Iterator[tuple[pa.RecordBatch, Any]] | None = None
        self.finished = self._share.number >= len(splits)

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, which may be empty, or None if all splits are read. Waits only for the file."""
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
        """Return the current split, and the place in this split."""
        return self._share.position()

    def split_name(self) -> str:
        """Return the number of the current split, and its file."""
        file = getattr(self._splits[self.split], "file", None) if self.split < len(self._splits) else None
        return super().split_name() if file is None else f"{super().split_name()} ({file.path})"

    def close(self) -> None:
        """Close the file that is open."""
        batches, self._batches = self._batches, None
        close = getattr(batches, "close", None)
        if close is not None:
            close()
