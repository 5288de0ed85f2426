"""Connectors of a user in real jobs: what the runtime calls, and when."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from tests.runtime.jobs import counted, environment, eventually

SCHEMA = pa.schema({"at": pa.timestamp("us", "UTC"), "split": pa.int64()})


class Queue(hg.Source):
    """Numbers without end, which are acknowledged. The calls are those of this process, and of all tests' threads."""

    schema = pa.schema({"n": pa.int64()})
    bounded = False
    commits: list[tuple[list[Any], int]] = []  # noqa: RUF012

    def reader(self, context: hg.ReaderContext) -> hg.SourceReader:
        return QueueReader(context)

    def commit(self, pending: Sequence[Any], checkpoint: int) -> None:
        Queue.commits.append((list(pending), checkpoint))


class QueueReader(hg.SourceReader):
    def __init__(self, context: hg.ReaderContext) -> None:
        self.context = context
        self.next = context.positions[context.subtask] if context.positions else context.subtask

    def read(self) -> pa.RecordBatch:
        self.next += self.context.parallelism
        return pa.record_batch({"n": [self.next - self.context.parallelism]})

    def position(self) -> Any:
        return self.next

    def to_commit(self) -> Any:
        return {"subtask": self.context.subtask, "before": self.next}


def test_a_source_commits_what_complete_checkpoints_have(tmp_path: Path) -> None:
    Queue.commits.clear()
    env = environment(checkpoint_dir=tmp_path, checkpoint_interval="20 ms")
    rows = env.from_source(Queue())
    rows.sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: len(Queue.commits) >= 3)
    job.cancel()
    numbers = [checkpoint for _, checkpoint in Queue.commits]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0
    read = [{each["subtask"]: each["before"] for each in pending} for pending, _ in Queue.commits]
    assert all(sorted(each) == [0, 1] for each in read)
    assert all(before[n] <= after[n] for before, after in pairwise(read) for n in (0, 1))


class Clogged(hg.Sink):
    """Takes no row before the gate is open."""

    gate = threading.Event()
    waits = threading.Event()

    def writer(self, context: hg.WriterContext) -> hg.SinkWriter:
        return CloggedWriter(context)


class CloggedWriter(hg.SinkWriter):
    def __init__(self, context: hg.WriterContext) -> None:
        self.context = context

    def write(self, batch: pa.RecordBatch) -> None:
        Clogged.waits.set()
        self.context.wait_until(Clogged.gate.is_set)


@pytest.mark.parametrize("ends", ["opens", "is cancelled"])
def test_a_writer_that_waits_is_back_pressure_and_can_be_cancelled(ends: str) -> None:
    Clogged.gate.clear()
    Clogged.waits.clear()
    env = environment(parallelism=1, taskmanagers=1)
    counted(env, rows=1000).sink_to(Clogged()).name("clogged")
    job = env.execute_async()
    assert Clogged.waits.wait(30)
    if ends == "opens":
        Clogged.gate.set()
        assert job.wait(30).rows_in == 1000
        assert [task["hard_backpressured_s"] > 0 for task in job.metrics()["tasks"].values()] == [True]
    else:
        job.cancel()
        assert job.status() == "CANCELLED"


class TwoSplits(hg.Source):
    """Two splits that are read at once: one is at minute 0, the other at minute 10."""

    schema = SCHEMA
    bounded = False

    def reader(self, context: hg.ReaderContext) -> hg.SourceReader:
        return TwoSplitsReader(context)


class TwoSplitsReader(hg.SourceReader):
    def __init__(self, context: hg.ReaderContext) -> None:
        self.open_splits = [0, 1] if context.subtask == 0 else []
        self.has_split = bool(self.open_splits)
        self.minute = 0
        self.clock = context.clock

    def read(self) -> pa.RecordBatch | None:
        if not self.open_splits or self.minute == 30:
            return None
        self.minute += 1
        times = [self.minute * 60_000_000, (self.minute + 10) * 60_000_000]
        self.rows_by_split = [(0, 1), (1, 1)]
        columns = [pa.array(times, pa.int64()).cast(SCHEMA.field("at").type), pa.array([0, 1])]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    def position(self) -> Any:
        return self.minute


def test_no_row_of_the_slower_split_is_late() -> None:
    env = environment()
    rows = env.from_source(TwoSplits(), watermark=hg.Watermark("at"))
    counts = rows.key_by().window(hg.tumble("1 min")).aggregate(rows=hg.count())
    collected = counts.collect(limit=25)
    assert [row["rows"] for row in sorted(collected.to_pylist(), key=lambda row: row["window_start"])] == [
        1 + (minute > 10) for minute in range(1, 26)
    ]


class Returning(hg.Source):
    """A source whose reader returns what it is given."""

    schema = pa.schema({"n": pa.int64()})

    def __init__(self, given: Any) -> None:
        self.given = given

    def reader(self, context: hg.ReaderContext) -> hg.SourceReader:
        return ReturningReader(self.given)


class ReturningReader(hg.SourceReader):
    def __init__(self, given: Any) -> None:
        self.given = given

    def read(self) -> Any:
        self.finished, given, self.given = True, self.given, None
        return given

    def position(self) -> Any:
        return 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"n": [1]}, "a dict; it must return None or a pyarrow.RecordBatch"),
        (pa.table({"n": [1]}), "a Table; it must"),
        (pa.record_batch({"n": ["x"]}), r"a batch of \(n string\); it must .* the source's schema \(n int64\)"),
        (pa.record_batch({"m": [1]}), r"a batch of \(m int64\); it must"),
    ],
    ids=["dict", "table", "type", "name"],
)
def test_what_is_no_batch_of_the_source_s_schema_is_refused(given: Any, error: str) -> None:
    """Text that is taken for integers would give rows that nobody wrote."""
    with pytest.raises(hg.SourceError, match=f"ReturningReader.read.. returned {error}"):
        environment().from_source(Returning(given)).collect()
