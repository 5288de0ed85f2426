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
    """A sink that drops the rows and records their arrival, in a file in `folder` per attempt and subtask.

    `column` is the name of an integer column, or None: then each record has 0.
    """

    def __init__(self, folder: Path, column: str | None = None) -> None:
        self._folder = folder
        self._column = column

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that appends to the file of its attempt and subtask."""
        return _ArrivalWriter(self._folder / f"{context.attempt}-{context.subtask}", self._column)


class _ArrivalWriter(SinkWriter):
    """Appends a record per batch, unbuffered, so that readers see it at once and a kill loses none."""

    def __init__(self, path: Path, column: str | None) -> None:
        self._file = path.open("ab", buffering=0)
        self._column = column

    def write(self, batch: pa.RecordBatch) -> None:
        largest = 0 if self._column is None else int(batch[self._column].to_numpy().max())
        self._file.write(_ARRIVAL.pack(time.monotonic(), largest))

    def close(self) -> None:
        self._file.close()


def arrivals(folder: Path, attempt: int | str = "*", subtask: int | str = "*") -> Iterator[list[tuple[float, int]]]:
    """Yield the batches so far of each writer of this attempt and subtask, in order: arrival time, largest value."""
    for path in sorted(folder.glob(f"{attempt}-{subtask}")):
        data = path.read_bytes()
        # A record that is being written may be incomplete; it is left out.
        yield list(_ARRIVAL.iter_unpack(data[: len(data) // _ARRIVAL.size * _ARRIVAL.size]))
