"""`ScheduledReader`: the base class of readers that know when their next rows are due."""

from __future__ import annotations

from abc import abstractmethod

import pyarrow as pa

from headgate.compat import concat_batches
from headgate.connectors.connector import SourceReader


class ScheduledReader(SourceReader):
    """A reader that has no rows before the time that `next_read` returns, also after `read` has returned a batch.

    So the task waits for that time after each batch. It asks other readers for the next batch first. The reader has one
    split.
    """

    def read_due(self, most: int) -> pa.RecordBatch | None:
        """Return the rows of all batches that are due, as one batch: as soon as it has `most` rows, no more are read.

        Returns None if no batch is due.
        """
        batches: list[pa.RecordBatch] = []
        rows = 0
        while rows < most and (batch := self.read()) is not None:
            batches.append(batch)
            rows += batch.num_rows
        return concat_batches(batches) if len(batches) > 1 else batches[0] if batches else None

    @abstractmethod
    def next_read(self) -> float | None:
        """Return the time, by the context's clock, before which the reader has no rows.

        Returns None if it may have rows now, or if it has finished.
        """
