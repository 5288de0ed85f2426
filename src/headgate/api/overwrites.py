"""A job must not remove its own input: sinks with mode="overwrite" against the files that the same job reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyarrow.fs import LocalFileSystem

from headgate.connectors.file_sink import FileSink
from headgate.connectors.files import DataFile
from headgate.errors import PlanError, SourceError
from headgate.operators.lookup_source import TableFile
from headgate.plan.graph import Node, StreamGraph


def check_overwrites(graph: StreamGraph) -> None:
    """Raises PlanError for a sink that empties a folder with files that the job reads."""
    sinks = [(node.name, node.sink) for node in graph.nodes if isinstance(node.sink, FileSink) and node.sink.replaces]
    if not sinks:
        return
    for node in graph.nodes:
        files = _read_by(node)
        for name, sink in sinks:
            if (file := sink.file_in_it(files)) is not None:
                raise PlanError(
                    f"sink {name!r} empties {sink.path} when the job starts, and {node.name!r} reads {file.path}, "
                    'which is in it; write to another folder, or use mode="append"'
                )


def _read_by(node: Node) -> Sequence[DataFile]:
    if isinstance(node.operator, partial):
        tables = [argument for argument in node.operator.args if isinstance(argument, TableFile)]
        return [DataFile(LocalFileSystem(), str(table.path), 0) for table in tables]
    if node.source is not None:
        with suppress(SourceError):  # preparing the source finds the same, and says at which operator
            return node.source.files()
    return ()
