"""What users' connectors put into checkpoints must come back as it was. Otherwise rows would be lost or doubled."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.json_values import checked
from headgate.operators.operator import OperatorContext
from headgate.runtime.task.chain import Chained
from headgate.runtime.task.heads import SourceHead
from tests.connectors.conftest import reader_context
from tests.runtime.jobs import eventually

SCHEMA = pa.schema({"n": pa.int64()})
STORED = [None, True, 7, 0.5, "x", [1, [2]], {"a": {"b": [None]}}, {}]
CHANGED = [{7: 1}, (1, 2), [(1, 2)], {"a": {None: 1}}]
REFUSED = [{1}, b"x", math.nan, Path("x"), object()]


@pytest.mark.parametrize("value", STORED, ids=repr)
def test_json_values_are_accepted(value: Any) -> None:
    assert checked(value, "it") == value


@pytest.mark.parametrize("value", CHANGED, ids=repr)
def test_a_value_that_would_come_back_changed_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="it would come back from a checkpoint as"):
        checked(value, "it")


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_a_value_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="it cannot be stored in a checkpoint"):
        checked(value, "it")


@pytest.mark.parametrize("position", [{7: 1}, {1}], ids=repr)
def test_a_position_of_poll_that_would_change_fails_the_job_at_once(position: Any) -> None:
    source = hg.sources.poll(lambda _split, _position: ([{"n": 1}], position), schema=SCHEMA, bounded=True)
    with pytest.raises(hg.UserFunctionError, match=r"poll\[0\]: split .all.: the position"):
        hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False)).from_source(source).collect()


class Numbers:
    """A function of poll that changes its position in place, and returns the same object again and again."""

    def __init__(self, own: bool) -> None:
        self.position: Any = {"next": 0, "seen": []} if own else None
        self.calls = 0

    def __call__(self, split: str, position: Any) -> tuple[list[dict[str, int]], Any]:
        position = self.position or position or {"next": 0, "seen": []}
        number = position["next"]
        position["next"] = number + 1
        position["seen"].append(number)
        self.calls += 1
        return [{"n": number}], position

    def has_calls(self, calls: int) -> bool:
        return self.calls == calls


@pytest.mark.parametrize("own", [False, True], ids=["its argument", "its own object"])
def test_a_function_of_poll_may_change_a_position_in_place(own: bool) -> None:
    """It is called ahead of the job. The positions of rows that were read once changed with it, and rows were lost."""
    numbers = Numbers(own)
    reader = hg.sources.poll(numbers, schema=SCHEMA).reader(reader_context())
    for number in range(5):
        eventually(partial(numbers.has_calls, number + 3))
        batch = reader.read()
        assert batch is not None
        assert batch["n"].to_pylist() == [number]
        assert reader.position() == {"all": ["open", {"next": number + 1, "seen": list(range(number + 1))}]}
    reader.close()


def test_a_split_of_poll_that_comes_back_goes_on_at_its_position() -> None:
    def numbers_from(splits: list[str], positions: Any) -> tuple[list[Any], list[Any]]:
        """Return the positions that the function gets, and those of two readers that have ended."""
        asked: list[Any] = []

        def once(split: str, position: Any) -> Any:
            asked.append((split, position))
            return ([{"n": 1}], 1) if position is None else None

        source = hg.sources.poll(once, schema=SCHEMA, splits=splits, bounded=True)
        contexts = [replace(reader_context(subtask, 2), positions=positions) for subtask in range(2)]
        readers = [source.reader(context) for context in contexts]
        for reader in readers:
            eventually(partial(_has_finished, reader))
            reader.close()
        return asked, [reader.position() for reader in readers]

    _, positions = numbers_from(["a", "b", "c"], None)
    assert sorted({split: place for position in positions for split, place in position.items()}) == ["a", "b", "c"]
    positions[1]["b"] = ["open", 7]
    asked, positions = numbers_from(["c", "d"], positions)
    assert {split for split, _ in asked} == {"d"}, "c has ended"
    asked, _ = numbers_from(["d", "b"], positions)
    assert asked == [("b", 7)]


def _has_finished(reader: hg.SourceReader) -> bool:
    reader.read()
    return reader.finished


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
