"""Forged positions, which no reader returned, are refused when they are checked or read, or do no harm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.connectors.connector import Source
from headgate.demo.replay import Replay
from headgate.state.snapshot import checkpoint_errors
from tests.connectors.conftest import reader_context
from tests.runtime.forging import NASTY, put_nasty

SCHEMA = pa.schema({"n": pa.int64(), "t": pa.timestamp("us", "UTC")})
ROWS = 100
FILE = "some.state"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows(start: int, n: int) -> pa.RecordBatch:
    return pa.record_batch([range(start, start + n), [1_000_000 * n for n in range(start, start + n)]], schema=SCHEMA)


def batches(subtask: int, subtasks: int) -> Iterator[pa.RecordBatch]:
    return (rows(start, 10) for start in range(10 * subtask, ROWS, 10 * subtasks))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = "".join(f"{row['n']},{row['t'].isoformat()}\n" for row in rows(0, ROWS).to_pylist())
    for name in "ab":
        (tmp_path / "in" / f"{name}.csv").write_text(f"n,t\n{lines}")
    pq.write_table(pa.table(rows(0, ROWS)), tmp_path / "n.parquet", row_group_size=10)
    (tmp_path / "secret.csv").write_text("n,t\n666,2020-01-01\n")
    return tmp_path


SOURCES: dict[str, Callable[[Path], Source]] = {
    "csv": lambda folder: hg.sources.csv(folder / "in", schema=SCHEMA, split_size=500),
    "parquet": lambda folder: hg.sources.parquet(folder / "n.parquet", split_size=100, batch_rows=5),
    "generate": lambda folder: hg.sources.generate(rows, rows=ROWS, batch_rows=7),
    "paced": lambda folder: hg.sources.generate(rows, rows=ROWS, rate=50.0, batch_rows=7),
    "list": lambda folder: hg.sources.iterable([rows(start, 10) for start in range(0, ROWS, 10)]),
    "iterators": lambda folder: hg.sources.iterable(batches, schema=SCHEMA),
    "watched": lambda folder: hg.sources.files(folder / "in", format="csv", schema=SCHEMA, watch=True, interval=5),
    "replay": lambda folder: Replay(hg.sources.csv(folder / "in", schema=SCHEMA), "t", EPOCH, 9),
    "socket": lambda folder: hg.sources.socket_lines("127.0.0.1", 9),
}  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def positions_of(source: Source, parallelism: int, reads: int) -> list[Any]:
    """Return the positions of a source's readers after some reads."""
    source.prepare()
    clock = Clock()
    readers = [source.reader(reader_context(n, parallelism, clock=clock)) for n in range(parallelism)]
    for reader in readers:
        for _ in range(reads):
            reader.read()
    positions = json.loads(json.dumps([reader.position() for reader in readers]))
    for reader in readers:
        reader.close()
    return list(positions)


def resume(source: Source, positions: list[Any], parallelism: int) -> list[dict[str, Any]]:
    """Resume readers as a task does, and return the rows of some reads. Raises HeadgateError, and nothing else."""
    clock, rows = Clock(), []
    for subtask in range(parallelism):
        with checkpoint_errors(FILE):
            for position in positions:
                source.check_position(position)
            context = reader_context(subtask, parallelism, clock=clock)
            reader = source.reader(replace(context, positions=positions))
        for _ in range(60):
            batch = reader.read()
            rows += batch.to_pylist() if batch is not None else []
        json.dumps(reader.position())
        reader.close()
    return rows


@pytest.mark.parametrize("kind", [kind for kind in SOURCES if kind != "socket"])
def test_any_value_anywhere_in_a_position_is_read_or_refused(folder: Path, kind: str) -> None:
    source = SOURCES[kind](folder)
    chance = random.Random(kind)
    refusals = []
    originals = {reads: positions_of(source, 2, reads) for reads in (0, 2, 4)}
    for number in range(150):
        positions = put_nasty(originals[chance.choice([0, 2, 4])], chance)
        if not isinstance(positions, list) or len(positions) != 2:
            continue
        try:
            resume(source, positions, 2 + number % 2)
        except hg.CheckpointError as error:
            refusals.append(error.message)
        except hg.HeadgateError:
            pass
    assert len(refusals) > 20
    assert all(FILE in message or "resume with a parallelism" in message for message in refusals)


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_value_that_is_no_position_is_refused(folder: Path, kind: str, value: Any) -> None:
    if value is None and kind == "socket":
        return
    with pytest.raises(hg.CheckpointError, match=f"{FILE}: is no state that this job can resume from"):
        resume(SOURCES[kind](folder), [value], 1)


@pytest.mark.parametrize(
    "name", ["../secret.csv", "a/../../secret.csv", "/etc/passwd", "secret.csv", "", ".", "a//b", "a\0"]
)
@pytest.mark.parametrize("part", ["begun", "read"])
def test_a_position_cannot_name_a_file_that_is_not_watched(folder: Path, part: str, name: str) -> None:
    """Once such a file's rows came to the output."""
    position: dict[str, Any] = {"read": [], "begun": []}
    position[part] = [[name, 10, [0, 0, 0]]] if part == "begun" else [name]
    source = SOURCES["watched"](folder)
    if (name, part) == ("secret.csv", "read"):
        assert 666 not in {row["n"] for row in resume(source, [position], 1)}, "a file that was read once and is gone"
    elif name == "secret.csv":
        with pytest.raises(hg.SourceError, match=r"secret\.csv: is no longer a file of"):
            resume(source, [position], 1)
    else:
        with pytest.raises(hg.CheckpointError, match=f"{FILE}: is no state.*a path below a folder"):
            resume(source, [position], 1)


@pytest.mark.turns(4)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("parallelism", [2, 4])
@pytest.mark.parametrize("number", [1 << 40, (1 << 63) - 1])
def test_positions_that_are_far_apart_are_refused_quickly(parallelism: int, number: int) -> None:
    source = hg.sources.generate(rows, rows=None, batch_rows=7)
    positions = positions_of(source, 2, 1)
    positions[1]["at"][0] = number | 1
    if parallelism == 2:
        positions[0]["before"] = [[[number, None]] * 7]
    with pytest.raises(hg.CheckpointError, match="resume with a parallelism of"):
        resume(source, positions, parallelism)


def test_positions_of_a_long_job_resume_quickly() -> None:
    """A job that ran for years goes on at once, at another parallelism, too."""
    source = hg.sources.generate(rows, rows=None, batch_rows=7)
    positions = positions_of(source, 2, 1)
    for subtask, position in enumerate(positions):
        position["at"] = [(1 << 30) + subtask, None]
    found = resume(source, positions, 3)
    assert min(row["n"] for row in found) == 7 << 30


@pytest.mark.parametrize("prepared", [*NASTY, {"files": {}, "split_size": 0}, {"files": {"a": [1]}, "split_size": 1}])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_forged_list_of_files_is_refused(folder: Path, kind: str, prepared: Any) -> None:
    with pytest.raises(hg.SourceError, match="what the source stored in the checkpoint"):
        SOURCES[kind](folder).restore(prepared)


def test_a_split_size_that_makes_too_many_splits_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large.csv").open("wb") as file:
        file.write(b"n,t\n")
        file.truncate(1 << 30)
    source = hg.sources.csv(tmp_path, schema=SCHEMA, split_size=100)
    with pytest.raises(hg.SourceError, match=r"large\.csv: .* split_size=100 makes more than 4194304 splits"):
        source.prepare()
