"""Checks that no file sink empties a folder that the same job needs, or writes among the job's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pyarrow.fs import LocalFileSystem

from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.errors import PlanError, SourceError
from headgate.filesystems import absolute, is_within
from headgate.operators.lookup_source import TableFile
from headgate.plan.graph import Node, StreamGraph
from headgate.runtime.checkpointing.resume import LATEST, LATEST_IF_ANY
from headgate.state.checkpoint_storage import CheckpointStorage


def check_overwrites(graph: StreamGraph, job: str, checkpoint_dir: str | None, resume: str | None) -> None:
    """Raise PlanError if a sink empties a folder that the job also needs, or writes among the job's checkpoints.

    The job needs a folder with the checkpoint that it resumes from, with files that it reads, or with the results of
    another sink.
    """
    sinks = [(node.name, node.sink) for node in graph.nodes if isinstance(node.sink, FileSink)]
    for name, sink in sinks:
        if checkpoint_dir is not None:
            _check_checkpoints(name, sink, CheckpointStorage(checkpoint_dir, job).folder)
        if sink.replaces:
            if resume is not None and resume not in (LATEST, LATEST_IF_ANY):
                _check_resumed(name, sink, absolute(resume))
            _check_inputs(graph, name, sink)
            _check_outputs(name, sink, [(other_name, other) for other_name, other in sinks if other is not sink])


def _check_checkpoints(name: str, sink: FileSink, folder: str) -> None:
    if is_within(folder, sink.path) or is_within(sink.path, folder):
        raise PlanError(
            f"sink {name!r} writes to {sink.path}, and the job's checkpoints are in {folder}; "
            "give the checkpoints a folder of their own"
        )


def _check_resumed(name: str, sink: FileSink, checkpoint: str) -> None:
    if is_within(checkpoint, sink.path):
        raise PlanError(
            f"sink {name!r} empties {sink.path} when a job starts, and the job resumes from {checkpoint}, which is in "
            "this folder; move the checkpoint, or write to another folder"
        )


def _check_inputs(graph: StreamGraph, name: str, sink: FileSink) -> None:
    for node in graph.nodes:
        if (file := sink.file_in_it(_read_by(node))) is not None:
            raise PlanError(
                f"sink {name!r} empties {sink.path} when the job starts, and {node.name!r} reads {file.path}, "
                'which is in this folder; write to another folder, or use mode="append"'
            )


def _check_outputs(name: str, sink: FileSink, others: Sequence[tuple[str, FileSink]]) -> None:
    for other_name, other in others:
        if is_within(other.path, sink.path):
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
