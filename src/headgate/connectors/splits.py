"""Reading a dealt share of splits one after the other: the reader that all file sources have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from headgate.connectors.base import ReaderContext, SourceReader
from headgate.errors import ConfigError
from headgate.quantities import size

S = TypeVar("S")


def check_split_size(value: int | str) -> int:
    """Bytes from a number or e.g. "64 mb". Raises ConfigError."""
    try:
        size_in_bytes = size(value)
    except ConfigError as error:
        raise ConfigError(f"split_size: {error.message}") from None
    if size_in_bytes < 1:
        raise ConfigError(f"split_size={value!r} must be at least 1 byte")
    return size_in_bytes


class SplitReader(SourceReader, Generic[S]):
    """Reads every `parallelism`-th of `splits`, from the subtask's own number on, each in order.

    `open_split` gives a split's batches; it is a generator, so that its files are closed when it is.
    """

    def __init__(self, splits: Sequence[S], open_split: Callable[[S], Iterator[pa.RecordBatch]],
                 context: ReaderContext) -> None:  # fmt: skip
        self._open = open_split
        self._left = iter(range(context.subtask, len(splits), context.parallelism))
        self._splits = splits
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self.finished = context.subtask >= len(splits)

    def read(self) -> pa.RecordBatch | None:
        """The next batch, which may be empty; waits for no more than the file. None once all splits are read."""
        while not self.finished:
            for batch in self._batches:
                return batch
            number = next(self._left, None)
            if number is None:
                self.finished = True
            else:
                self.split = number
                self._batches = self._open(self._splits[number])
        return None

    def close(self) -> None:
        """Close the file that is open."""
        batches, self._batches = self._batches, iter(())
        close = getattr(batches, "close", None)
        if close is not None:
            close()
