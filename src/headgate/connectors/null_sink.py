"""A sink that drops its rows, for benchmarks, and for jobs that only have side effects."""

from __future__ import annotations

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext


class NullSink(Sink):
    """A sink that drops every row; see `hg.sinks.null`."""

    exactly_once = True

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that drops the rows."""
        return _NullWriter()


class _NullWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        """Drop the batch."""
