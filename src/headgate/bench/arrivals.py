"""A sink that notes when batches come, on the clock that all processes of a machine share."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext

#: `time.monotonic()` when a batch came, and the largest value in the column that is followed.
_ARRIVAL = struct.Struct("<dq")


class Arrivals(Sink):
    """Drops the rows. Each attempt of a subtask has a file in `folder`; `column` is one of whole numbers."""

    def __init__(self, folder: Path, column: str | None = None) -> None:
        self._folder = folder
        self._column = column

    def writer(self, context: WriterContext) -> SinkWriter:
        """Appends to its file."""
        return _ArrivalWriter(self._folder / f"{context.attempt}-{context.subtask}", self._column)


class _ArrivalWriter(SinkWriter):
    def __init__(self, path: Path, column: str | None) -> None:
        self._file = path.open("ab", buffering=0)
        self._column = column

    def write(self, batch: pa.RecordBatch) -> None:
        largest = 0 if self._column is None else int(batch[self._column].to_numpy().max())
        self._file.write(_ARRIVAL.pack(time.monotonic(), largest))

    def close(self) -> None:
        self._file.close()


def arrivals(folder: Path, attempt: int | str = "*", subtask: int | str = "*") -> Iterator[list[tuple[float, int]]]:
    """Of each writer there was (of this attempt, of this subtask) the batches so far, in order: time and number."""
    for path in sorted(folder.glob(f"{attempt}-{subtask}")):
        data = path.read_bytes()
        yield list(_ARRIVAL.iter_unpack(data[: len(data) // _ARRIVAL.size * _ARRIVAL.size]))
