"""Helpers that run connectors without a runtime: contexts, and readers and writers run to their end."""

from __future__ import annotations

import dataclasses
import logging
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.connectors.connector import Claim, ReaderContext, Sink, Source, SourceReader, WriterContext
from headgate.ownership import Program
from tests.connectors.shown import Shown

#: Of a job without checkpoints.
CLAIM = Claim(program=Program.this("run"), epoch=1, check=lambda: None)


def reader_context(subtask: int = 0, parallelism: int = 1, *, wake: Callable[[], None] = lambda: None,
                   started_at: float = 0.0, clock: Callable[[], float] = lambda: 0.0,
                   **sides: Callable[[pa.RecordBatch], None]) -> ReaderContext:  # fmt: skip
    return ReaderContext(
        job="job",
        operator="source",
        subtask=subtask,
        parallelism=parallelism,
        wake=wake,
        started_at=started_at,
        clock=clock,
        sides=sides,
    )


def drain(reader: SourceReader) -> list[pa.RecordBatch]:
    """Return all batches of a reader that never waits."""
    batches = []
    while not reader.finished:
        batch = reader.read()
        assert batch is not None or reader.finished
        if batch is not None:
            batches.append(batch)
    reader.close()
    return batches


def read_source(source: Source, parallelism: int = 1) -> list[pa.Table]:
    """Run a source as a job does, also pickle it for its subtasks. Returns a table per subtask."""
    source.prepare()
    tables = []
    for subtask in range(parallelism):
        remote = pickle.loads(pickle.dumps(source))
        batches = drain(remote.reader(reader_context(subtask, parallelism)))
        tables.append(pa.Table.from_batches(batches, source.schema))
    return tables


def writer_context(schema: pa.Schema, subtask: int = 0, *, deliver: Callable[[pa.RecordBatch], None] = print,
                   parallelism: int = 1, attempt: int = 0, checkpoint: int = 0) -> WriterContext:  # fmt: skip
    return WriterContext(
        job="job-1",
        operator="sink",
        subtask=subtask,
        parallelism=parallelism,
        schema=schema,
        deliver=deliver,
        attempt=attempt,
        checkpoint=checkpoint,
        clock=time.time,
        sleep=time.sleep,
        wait_until=_wait_until,
    )


def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


def start(sink: Sink, schema: pa.Schema, claim: Claim = CLAIM) -> Sink:
    """Prepare, claim and begin a sink, as a job that does not resume."""
    sink.prepare("job 1", schema)
    return take_over(sink, claim)


def take_over(sink: Sink, claim: Claim | None = None) -> Sink:
    """Claim a sink's results and begin: as the newest program, unless a claim is given."""
    claim = claim or dataclasses.replace(CLAIM, epoch=1 + sink.newest_owner())
    assert sink.claim(claim)
    sink.begin(claim)
    return sink


def write_sink(sink: Sink, parts: Sequence[Sequence[pa.RecordBatch]], schema: pa.Schema) -> list[Any]:
    """Run a sink's writers, one per part. Returns what the caller passes to `commit`."""
    pending = []
    for subtask, batches in enumerate(parts):
        remote = pickle.loads(pickle.dumps(sink))
        writer = remote.writer(writer_context(schema, subtask, deliver=sink.deliver, parallelism=len(parts)))
        for batch in batches:
            writer.write(batch)
        pending.append(writer.finish())
        writer.close()
    return pending


@pytest.fixture(name="reader_context")
def reader_context_fixture() -> Callable[..., ReaderContext]:
    return reader_context


@pytest.fixture(name="read_source")
def read_source_fixture() -> Callable[..., list[pa.Table]]:
    return read_source


@pytest.fixture(name="write_sink")
def write_sink_fixture() -> Callable[..., list[Any]]:
    return write_sink


@pytest.fixture(name="writer_context")
def writer_context_fixture() -> Callable[..., WriterContext]:
    return writer_context


@pytest.fixture
def shown(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Shown:
    caplog.set_level(logging.DEBUG)
    return Shown(tmp_path, caplog, capfd)
