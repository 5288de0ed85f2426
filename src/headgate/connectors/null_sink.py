"""Rows that nobody wants: for benchmarks, and to run a pipeline for its effects."""

from __future__ import annotations

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext


class NullSink(Sink):
    """Drops every row."""

    exactly_once = True

    def writer(self, context: WriterContext) -> SinkWriter:
        """Drops its subtask's rows."""
        return _NullWriter()


class _NullWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        """Nothing to do."""
