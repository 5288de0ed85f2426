"""The sink that replaces a sink of the pipeline: it collects the rows for the test."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.errors import ConfigError


class CollectingSink(Sink):
    """A sink that keeps its rows for the test. The threads of the test and of the tasks share it; other processes
    cannot.

    The sink needs no lock: the test takes rows only while no task writes rows. It is exactly-once without transactions:
    a job under test resumes only from the checkpoint with which it stopped, so no row is written twice.
    """

    exactly_once = True

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._batches: dict[int, list[pa.RecordBatch]] = {}

    def __reduce__(self) -> Any:
        raise ConfigError("a test cannot collect rows from another process: run its tasks in threads of this one")

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer that collects the rows of its subtask."""
        return _CollectingWriter(self._batches.setdefault(context.subtask, []))

    def take(self) -> list[pa.RecordBatch]:
        """Return the batches since the last call. They are in the order of the subtasks, so every run gives the same
        order."""
        taken = [batch for subtask in sorted(self._batches) for batch in self._batches[subtask]]
        for batches in self._batches.values():
            batches.clear()
        return taken


class _CollectingWriter(SinkWriter):
    """Appends batches to the list of its subtask."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
