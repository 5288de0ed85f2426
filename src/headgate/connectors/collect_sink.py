"""Rows that come back to the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import ConfigError, PlanError


def check_limit(limit: int | None) -> None:
    """Raises ConfigError unless it is None or a number of rows."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ConfigError(f"limit={limit!r} must be a number of rows, or None for all")


class DeliveringWriter(SinkWriter):
    """Sends its batches to the driver; with a limit no more rows than could be wanted of it."""

    def __init__(self, context: WriterContext, limit: int | None) -> None:
        self._deliver = context.deliver
        self._left = limit

    def write(self, batch: pa.RecordBatch) -> None:
        """Deliver, which waits for the driver when it is slower."""
        if self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        if batch.num_rows:
            self._deliver(batch)


class CollectSink(Sink):
    """Keeps the rows of one run on the driver, at most `limit`; see `hg.sinks.collect`."""

    exactly_once = True

    def __init__(self, limit: int | None = None) -> None:
        check_limit(limit)
        self.limit = limit
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self._checkpoints: list[int] = []
        self._schema: pa.Schema | None = None

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Forget the last run's rows."""
        self.batches, self.rows, self._checkpoints, self._schema = [], 0, [], schema

    def writer(self, context: WriterContext) -> SinkWriter:
        """Sends batches here."""
        return DeliveringWriter(context, self.limit)

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """Keep what is still wanted."""
        if self.limit is not None:
            batch = batch.slice(0, self.limit - self.rows)
        if batch.num_rows:
            self.batches.append(batch)
            self.rows += batch.num_rows
            self._checkpoints.append(checkpoint)

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Forget the rows of later checkpoints."""
        kept = [(batch, of) for batch, of in zip(self.batches, self._checkpoints, strict=True) if of <= checkpoint]
        self.batches, self._checkpoints = [batch for batch, _ in kept], [of for _, of in kept]
        self.rows = sum(batch.num_rows for batch in self.batches)

    @property
    def full(self) -> bool:
        """There are `limit` rows: what else comes is not kept."""
        return self.limit is not None and self.rows >= self.limit

    def to_table(self) -> pa.Table:
        """The rows so far, in no particular order. Raises PlanError before the first job."""
        if self._schema is None:
            raise PlanError(
                "collect: no job has run with this sink; add it with stream.sink_to(...), then env.execute()"
            )
        return pa.Table.from_batches(self.batches, self._schema)
