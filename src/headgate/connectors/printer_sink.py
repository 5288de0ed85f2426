"""Rows printed where the program runs."""

from __future__ import annotations

import pyarrow as pa

from headgate.connectors.arguments import TEXT, check
from headgate.connectors.collect_sink import DeliveringWriter, check_limit
from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import printable
from headgate.operators.conversion import python_rows


class PrinterSink(Sink):
    """Prints a line per row on the driver; see `hg.sinks.printer`.

    What is printed stays: a row that comes again after a restart is printed again.
    """

    def __init__(self, prefix: str = "", limit: int | None = None) -> None:
        check(TEXT, prefix=prefix)
        check_limit(limit)
        self._prefix = prefix
        self._limit = limit
        self._left = limit

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """The limit is per run."""
        self._left = self._limit

    def writer(self, context: WriterContext) -> SinkWriter:
        """Sends batches here."""
        return DeliveringWriter(context, self._limit)

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        """Print the rows that are still wanted."""
        if self._left is not None:
            batch = batch.slice(0, self._left)
            self._left -= batch.num_rows
        for row in python_rows(batch):
            values = ", ".join(f"{name}={value}" for name, value in row.items())
            print(f"{self._prefix}{printable(values)}")
