"""A sink that returns rows to the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import ConfigError, PlanError


def check_limit(limit: int | None) -> None:
    """Check that the limit is None or a number of rows. Raises ConfigError for any other value."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ConfigError(f"limit={limit!r} must be a number of rows, or None for all")


class DeliveringWriter(SinkWriter):
    """A writer that sends at most `limit` rows of its subtask to the driver, or all rows if `limit` is None."""

    def __init__(self, context: WriterContext, limit: int | None) -> None:
        self._deliver = context.deliver
        self._remaining = limit

    def write(self, batch: pa.RecordBatch) -> None:
        """Send the batch to the driver. Waits while the driver is slower than the task."""
        if self._remaining is not None:
            batch = batch.slice(0, self._remaining)
            self._remaining -= batch.num_rows
        if batch.num_rows:
            self._deliver(batch)


class CollectSink(Sink):
    """A sink that keeps at most `limit` rows of one run on the driver; see `hg.sinks.collect`."""

    exactly_once = True

    def __init__(self, limit: int | None = None) -> None:
        check_limit(limit)
        self.limit = limit
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        #: The checkpoint that each batch belongs to.
        self._checkpoints: list[int] = []
        self._schema: pa.Schema | None = None

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Discard the rows of the last run."""
        self.batches, self.rows, self._checkpoints, self._schema = [], 0, [], schema

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that sends batches to `deliver`."""
        return DeliveringWriter(context, self.limit)

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """Keep the rows of a batch, up to the limit."""
        if self.limit is not None:
            batch = batch.slice(0, self.limit - self.rows)
        if batch.num_rows:
            self.batches.append(batch)
            self.rows += batch.num_rows
            self._checkpoints.append(checkpoint)

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Discard the rows that belong to checkpoints after `checkpoint`."""
        pairs = [pair for pair in zip(self.batches, self._checkpoints, strict=True) if pair[1] <= checkpoint]
        self.batches, self._checkpoints = [batch for batch, _ in pairs], [number for _, number in pairs]
        self.rows = sum(batch.num_rows for batch in self.batches)

    @property
    def full(self) -> bool:
        """Whether the sink has `limit` rows. The sink then discards all further rows."""
        return self.limit is not None and self.rows >= self.limit

    def to_table(self) -> pa.Table:
        """Return the rows that have arrived so far, in no particular order. Raises PlanError before the first job."""
        if self._schema is None:
            raise PlanError(
                "collect: no job has run with this sink; add it with stream.sink_to(...), then env.execute()"
            )
        return pa.Table.from_batches(self.batches, self._schema)
