"""A sink that prints rows on the driver."""

from __future__ import annotations

import pyarrow as pa

from headgate.connectors.arguments import TEXT, check
from headgate.connectors.collect_sink import DeliveringWriter, check_limit
from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import printable
from headgate.operators.python_values import python_rows


class PrinterSink(Sink):
    """A sink that prints each row as a line on the driver; see `hg.sinks.printer`.

    A restart cannot remove printed lines. After a restart, the sink therefore prints rows after the checkpoint again.
    """

    def __init__(self, prefix: str = "", limit: int | None = None) -> None:
        check(TEXT, prefix=prefix)
        check_limit(limit)
        self._prefix = prefix
        self._limit = limit
        self._remaining = limit

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Start to count lines from 0, because the limit is per run."""
        self._remaining = self._limit

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that sends batches to `deliver`."""
        return DeliveringWriter(context, self._limit)

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """Print the rows of a batch, up to the limit."""
        if self._remaining is not None:
            batch = batch.slice(0, self._remaining)
            self._remaining -= batch.num_rows
        for row in python_rows(batch):
            values = ", ".join(f"{name}={value}" for name, value in row.items())
            print(f"{self._prefix}{printable(values)}")
