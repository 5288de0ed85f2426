"""Checks that a sink with mode="overwrite" does not remove files that the same job reads or writes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyarrow.fs import LocalFileSystem

from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.errors import PlanError, SourceError
from headgate.filesystems import absolute
from headgate.operators.lookup_source import TableFile
from headgate.plan.graph import Node, StreamGraph


def check_overwrites(graph: StreamGraph, checkpoint_dir: str | None) -> None:
    """Raise PlanError if a sink empties a folder that the job also needs.

    The job needs a folder with its checkpoints, with files that it reads, or with the results of another sink.
    """
    sinks = [(node.name, node.sink) for node in graph.nodes if isinstance(node.sink, FileSink)]
    for name, sink in sinks:
        if sink.replaces:
            _check_checkpoints(name, sink, checkpoint_dir)
            _check_inputs(graph, name, sink)
            _check_outputs(name, sink, [(other_name, other) for other_name, other in sinks if other is not sink])


def _check_checkpoints(name: str, sink: FileSink, checkpoint_dir: str | None) -> None:
    if checkpoint_dir is None:
        return
    if f"{absolute(checkpoint_dir).rstrip('/')}/".startswith(f"{sink.path.rstrip('/')}/"):
        raise PlanError(
            f"sink {name!r} empties {sink.path} when the job starts, and the job's checkpoints are in "
            f"{checkpoint_dir}; give the checkpoints a folder of their own"
        )


def _check_inputs(graph: StreamGraph, name: str, sink: FileSink) -> None:
    for node in graph.nodes:
        if (file := sink.file_in_it(_read_by(node))) is not None:
            raise PlanError(
                f"sink {name!r} empties {sink.path} when the job starts, and {node.name!r} reads {file.path}, "
                'which is in it; write to another folder, or use mode="append"'
            )


def _check_outputs(name: str, sink: FileSink, others: Sequence[tuple[str, FileSink]]) -> None:
    for other_name, other in others:
        if other.is_below(sink):
            raise PlanError(
                f"sink {name!r} empties {sink.path} when the job starts, and sink {other_name!r} writes to "
                f'{other.path}; give each a folder of its own, or use mode="append" for both'
            )


def _read_by(node: Node) -> Sequence[DataFile]:
    """Return the files that a source or lookup reads."""
    if isinstance(node.operator, partial):
        tables = [argument for argument in node.operator.args if isinstance(argument, TableFile)]
        return [DataFile(LocalFileSystem(), str(table.path), 0) for table in tables]
    if node.source is not None:
        # The source raises this error again in `prepare`, and the runtime then adds the operator's name.
        with suppress(SourceError):
            return node.source.files()
    return ()
