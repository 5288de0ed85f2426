"""A job's sources and sinks on the driver: prepared before it starts, committed or aborted at its end.

Errors have the operator's name, whatever they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headgate.connectors.base import Sink
from headgate.errors import HeadgateError, SinkError, SourceError
from headgate.plan.graph import Node
from headgate.plan.job_graph import JobGraph
from headgate.records.arrow import plain_schema


class Ends:
    """Of one run. Not for several threads at once."""

    def __init__(self, job: JobGraph, run: str) -> None:
        self._run = run
        self._nodes = [node for vertex in job.vertices for node in vertex.nodes if node.source or node.sink]
        self._sinks: dict[int, tuple[Node, Sink]] = {
            node.id: (node, node.sink) for node in self._nodes if node.sink is not None
        }
        self._schemas = {node.id: plain_schema(node.schema) for node, _ in self._sinks.values()}
        self._prepared: list[int] = []
        self._reading: list[Node] = []
        self._pending: dict[int, list[Any]] = {node: [] for node in self._sinks}

    def prepare(self) -> None:
        """Check that everything can be read and written. Raises HeadgateError; then nothing is left of what was made
        ready."""
        try:
            # Sinks that remove what is there come last: a job that cannot start removes nothing.
            for node in sorted(self._nodes, key=lambda node: 0 if node.sink is None else 1 + node.sink.replaces):
                with _named(node):
                    if node.source is not None:
                        node.source.prepare()
                        self._reading.append(node)
                    if node.sink is not None:
                        self._prepared.append(node.id)
                        node.sink.prepare(f"{self._run}-{node.id}", node.schema)
        except BaseException:
            self.abort()
            raise

    def deliver(self, node_id: int, payload: bytes) -> None:
        """A batch for a sink that takes its rows on the driver."""
        node, sink = self._sinks[node_id]
        with _named(node):
            batch = pa.ipc.read_record_batch(pa.py_buffer(payload), self._schemas[node_id])
            batch.validate(full=True)
            sink.deliver(batch)

    def add_pending(self, node_id: int, pending: Any) -> None:
        """What a writer returned at its end."""
        self._pending[node_id].append(pending)

    def commit(self) -> None:
        """Make all sinks' results visible. Raises the first error; `abort` then takes back what was visible already."""
        for node, sink in self._sinks.values():
            with _named(node):
                sink.commit(self._pending[node.id])
                sink.finish()

    def release(self) -> list[str]:
        """The job has ended: sources remove what they made for it. Returns what could not be removed, and why."""
        problems = []
        for node in self._reading:
            assert node.source is not None
            try:
                node.source.release()
            except Exception as error:
                problems.append(f"source {node.name} could not clean up: {error}")
        self._reading = []
        return problems

    def abort(self) -> list[str]:
        """Leave nothing of the results. Returns what could not be cleaned up, and why."""
        problems = self.release()
        for node_id in self._prepared:
            node, sink = self._sinks[node_id]
            try:
                sink.abort()
            except Exception as error:
                problems.append(f"sink {node.name} could not clean up: {error}")
        self._prepared = []
        return problems


@contextmanager
def _named(node: Node) -> Iterator[None]:
    try:
        yield
    except HeadgateError as error:
        raise error.at(operator=node.name) from None
    except Exception as error:
        kind = SinkError if node.sink is not None else SourceError
        raise kind(f"{type(error).__name__}: {error}").at(operator=node.name) from error
