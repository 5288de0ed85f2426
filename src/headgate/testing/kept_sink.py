"""The sink that stands in for one of a pipeline's own: it keeps the rows for the test."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import ConfigError


class KeptSink(Sink):
    """Shared by the test's thread and the tasks' (never by processes). The test reads while no task has a row, so
    there is nothing to lock. A job under test is only ever resumed from where it was stopped: no row comes twice."""

    exactly_once = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._kept: dict[int, list[pa.RecordBatch]] = {}

    def __reduce__(self) -> Any:
        raise ConfigError("rows that a test keeps come only from tasks in threads of its own process")

    def writer(self, context: WriterContext) -> SinkWriter:
        """One that keeps what it is given."""
        return _KeptWriter(self._kept.setdefault(context.subtask, []))

    def take(self) -> list[pa.RecordBatch]:
        """What has come since the last call, by subtask, so that it does not depend on which was faster."""
        found = [batch for subtask in sorted(self._kept) for batch in self._kept[subtask]]
        for kept in self._kept.values():
            kept.clear()
        return found


class _KeptWriter(SinkWriter):
    def __init__(self, kept: list[pa.RecordBatch]) -> None:
        self._kept = kept

    def write(self, batch: pa.RecordBatch) -> None:
        self._kept.append(batch)
