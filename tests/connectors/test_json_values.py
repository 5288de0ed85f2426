"""What users' connectors put into checkpoints must come back as it was. Otherwise rows would be lost or doubled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.json_values import check_json
from headgate.operators.operator import OperatorContext
from headgate.runtime.task.chain import Chained
from headgate.runtime.task.heads import SourceHead

SCHEMA = pa.schema({"n": pa.int64()})
STORED = [None, True, 7, 0.5, "x", [1, [2]], {"a": {"b": [None]}}, {}]
CHANGED = [{7: 1}, (1, 2), [(1, 2)], {"a": {None: 1}}]
REFUSED = [{1}, b"x", math.nan, Path("x"), object()]


@pytest.mark.parametrize("value", STORED, ids=repr)
def test_json_values_are_accepted(value: Any) -> None:
    check_json(value, "it")


@pytest.mark.parametrize("value", CHANGED, ids=repr)
def test_a_value_that_would_come_back_changed_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="it would come back from a checkpoint as"):
        check_json(value, "it")


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_a_value_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="it cannot be stored in a checkpoint"):
        check_json(value, "it")


@pytest.mark.parametrize("position", [{7: 1}, {1}], ids=repr)
def test_a_position_of_poll_that_would_change_fails_the_job_at_once(position: Any) -> None:
    source = hg.sources.poll(lambda _split, _position: ([{"n": 1}], position), schema=SCHEMA, bounded=True)
    with pytest.raises(hg.UserFunctionError, match=r"poll\[0\]: split .all.: the position"):
        hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False)).from_source(source).collect()


def test_what_write_returns_fails_the_job_at_once() -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    sink = hg.sinks.two_phase(lambda _rows, _info: Path("x"), lambda _written, _claim: None)
    env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(sink)
    with pytest.raises(hg.UserFunctionError, match=r"two_phase\[0\]: what write\(\) returned cannot be stored"):
        env.execute()


class SetWriter(hg.SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> Any:
        return {1}


class SetSink(hg.Sink):
    def writer(self, context: hg.WriterContext) -> hg.SinkWriter:
        return SetWriter()


def test_what_a_writer_of_ones_own_returns_fails_the_job_with_its_name() -> None:
    """The thread that sends it to the driver failed instead, and the checkpoint never ended."""
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(SetSink())
    with pytest.raises(hg.SinkError, match=r"SetWriter.finish\(\) returned cannot be stored in a checkpoint"):
        env.execute()


class Nowhere(Chained):
    def emit(self, batch: pa.RecordBatch) -> None: ...

    def emit_watermark(self, time: int) -> None: ...

    def emit_status(self, active: bool) -> None: ...


class CountingReader(hg.SourceReader):
    """It returns the same list again and again, and appends to it."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def read(self) -> pa.RecordBatch:
        self.taken.append(len(self.taken))
        return pa.record_batch({"n": self.taken[-1:]}, schema=SCHEMA)

    def position(self) -> list[int]:
        return self.taken

    def to_commit(self) -> list[int]:
        return self.taken


def test_a_reader_may_change_the_object_that_it_returned() -> None:
    """Another thread writes the snapshot later. A job that restarted from it once lost the rows read meanwhile."""
    context = OperatorContext("job", "source", 0, 1, 1)
    head = SourceHead(
        lambda _positions: CountingReader(), schema=SCHEMA, plain=None, watermarks=None, idle_timeout=None,
        output=Nowhere(), context=context,
    )  # fmt: skip
    head.step(0.0)
    snapshot, read = head.snapshot(), head.to_commit()
    head.step(0.0)
    assert (snapshot["position"], read) == ([0], [0])
    assert head.snapshot()["position"] == [0, 1]
