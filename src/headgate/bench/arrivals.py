"""A sink that records when batches arrive, on the clock that all processes of a machine share."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext

#: A record: `time.monotonic()` when a batch arrived, and the largest value in its column `column`.
_ARRIVAL = struct.Struct("<dq")


class Arrivals(Sink):
    """A sink that drops rows and records when they arrive. `folder` gets a file for each attempt and subtask.

    `column` is the name of an integer column. If it is None, each record has the value 0.
    """

    def __init__(self, folder: Path, column: str | None = None) -> None:
        self._folder = folder
        self._column = column

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that appends to the file of its attempt and subtask."""
        return _ArrivalWriter(self._folder / f"{context.attempt}-{context.subtask}", self._column)


class _ArrivalWriter(SinkWriter):
    """A writer that appends a record per batch, unbuffered. So readers see a record at once, and a kill loses none."""

    def __init__(self, path: Path, column: str | None) -> None:
        self._file = path.open("ab", buffering=0)
        self._column = column

    def write(self, batch: pa.RecordBatch) -> None:
        largest = 0 if self._column is None else int(batch[self._column].to_numpy().max())
        self._file.write(_ARRIVAL.pack(time.monotonic(), largest))

    def close(self) -> None:
        self._file.close()


def arrivals(folder: Path, attempt: int | str = "*", subtask: int | str = "*") -> Iterator[list[tuple[float, int]]]:
    """Yield a list for each writer of this attempt and subtask: the records that the writer has written so far.

    A record is the arrival time of a batch and the largest value in the batch. "*" stands for all.
    """
    for path in sorted(folder.glob(f"{attempt}-{subtask}")):
        data = path.read_bytes()
        # A record that is being written may be incomplete; it is left out.
        yield list(_ARRIVAL.iter_unpack(data[: len(data) // _ARRIVAL.size * _ARRIVAL.size]))
