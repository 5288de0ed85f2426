"""The source of a watched folder: one subtask reads each file that comes into the folder, once."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import headgate as hg
from headgate.connectors.connector import Source, SourceReader
from tests.connectors.conftest import reader_context
from tests.runtime.jobs import eventually

SCHEMA = pa.schema({"a": pa.int64()})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def put(folder: Path, name: str, text: str) -> None:
    """Put a finished file into the folder by renaming it, as users should."""
    (folder / f"_{name}").write_text(text)
    (folder / f"_{name}").rename(folder / name)


def taken(readers: list[SourceReader]) -> list[list[Any]]:
    """Return the rows that each reader has now."""
    rows: list[list[Any]] = [[] for _ in readers]
    for rows_of_reader, reader in zip(rows, readers, strict=True):
        while (batch := reader.read()) is not None:
            rows_of_reader += batch[0].to_pylist()
    return rows


def together(readers: list[SourceReader]) -> list[Any]:
    return [row for rows in taken(readers) for row in rows]


def readers_of(source: Source, clock: Clock, parallelism: int) -> list[SourceReader]:
    source.prepare()
    contexts = [reader_context(n, parallelism, started_at=clock.now, clock=clock) for n in range(parallelism)]
    return [source.reader(context) for context in contexts]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_file_is_read_once(tmp_path: Path, parallelism: int) -> None:
    clock = Clock()
    readers = readers_of(
        hg.sources.files(tmp_path, format="csv", schema=SCHEMA, watch=True, interval=5), clock, parallelism
    )
    assert together(readers) == []
    found: list[int] = []
    for number in range(12):
        put(tmp_path, f"{number}.csv", f"a\n{number}\n")
        assert together(readers) == [], "it is not yet time to look"
        assert {reader.next_read() for reader in readers} == {clock.now + 5}
        clock.now += 5
        found += together(readers)
    assert found == list(range(12))
    assert not any(reader.finished for reader in readers)
    for reader in readers:
        reader.close()


def test_files_found_together_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    clock = Clock()
    for name in ("b", "a", "c"):
        put(tmp_path, f"{name}.txt", f"{name}1\n{name}2\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / ".hidden").write_text("no")
    [reader] = readers_of(hg.sources.files(tmp_path, watch=True), clock, 1)
    assert taken([reader]) == [["a1", "a2", "b1", "b2", "c1", "c2"]]
    assert reader.split == 3
    (tmp_path / "a.txt").write_text("changed\n")
    (tmp_path / "empty.txt").write_text("no longer\n")
    clock.now += 1
    assert taken([reader]) == [["no longer"]], "a file that was seen is not read again; an empty one was not seen"


def test_files_of_each_format_are_read(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    [reader] = readers_of(hg.sources.files(tmp_path / "*.parquet", format="parquet", watch=True), Clock(), 1)
    assert taken([reader]) == [[1, 2]]
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"a": 3}\n'))
    source = hg.sources.files(tmp_path / "*.gz", format="json_lines", schema=SCHEMA, watch=True)
    assert taken(readers_of(source, Clock(), 1)) == [[3]]


def test_without_watch_it_is_the_format(tmp_path: Path, read_source: Callable[..., list[pa.Table]]) -> None:
    put(tmp_path, "a.csv", "a\n1\n")
    assert read_source(hg.sources.files(tmp_path, format="csv"))[0].to_pydict() == {"a": [1]}


def test_impossible_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(hg.ConfigError, match="format='xml' is not one of csv, json_lines, parquet, text"):
        hg.sources.files(tmp_path, format="xml")  # type: ignore[arg-type]
    for interval in (0, "soon"):
        with pytest.raises(hg.ConfigError, match="files: interval"):
            hg.sources.files(tmp_path, watch=True, interval=interval)
    with pytest.raises(hg.SourceError, match=r"nowhere: no such folder; make it before the job starts"):
        hg.sources.files(tmp_path / "nowhere", watch=True).prepare()
    with pytest.raises(hg.ConfigError, match="json_lines has no option delimiter=; its options are schema, "):
        hg.sources.files(tmp_path, format="json_lines", delimiter=";")
    with pytest.raises(hg.SourceError, match=r"there is no file in this folder .* wait for them with files"):
        hg.sources.files(tmp_path, format="csv", watch=True)


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_a_job_reads_files_as_they_come(tmp_path: Path, processes: bool) -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=processes))
    rows = hg.sinks.collect()
    source = hg.sources.files(tmp_path, format="csv", schema=SCHEMA, watch=True, interval="20 ms")
    stream = env.from_source(source)
    stream.filter("a >= 0").sink_to(rows)
    bad = hg.sinks.collect()
    stream.side_output("bad").sink_to(bad)
    job = env.execute_async()
    try:
        for number in range(3):
            put(tmp_path, f"{number}.csv", f"a\n{number}\noops\n")
            eventually(lambda: (rows.rows, bad.rows) == (number + 1, number + 1), timeout=60)  # noqa: B023
    finally:
        job.cancel()
    assert sorted(rows.to_table()["a"].to_pylist()) == [0, 1, 2]
    assert bad.to_table()["line"].to_pylist() == [3, 3, 3]


def test_a_subtask_without_a_file_holds_back_no_watermark(tmp_path: Path) -> None:
    """There are two subtasks, and the names of all files fall to the second one."""
    clock = Clock()
    mine = [name for name in map("{}.csv".format, range(20)) if zlib.crc32(str(tmp_path / name).encode()) % 2]
    put(tmp_path, mine[0], "a\n0\n")
    without, reader = readers_of(hg.sources.files(tmp_path, format="csv", schema=SCHEMA, watch=True), clock, 2)
    assert without.has_split
    assert reader.has_split, "nobody has looked"
    assert without.read() is None
    assert reader.read() is not None
    assert (without.has_split, reader.has_split) == (False, True)
    assert (without.split_name(), reader.split_name()) == ("no file", f"split 1 ({tmp_path.name}/{mine[0]})")
    assert reader.read() is None
    assert reader.has_split, "all is read, and it has not looked again"
    clock.now += 1
    assert reader.read() is None
    assert not reader.has_split
    put(tmp_path, mine[1], "a\n1\n")
    clock.now += 1
    assert reader.read() is not None
    assert reader.has_split


def test_subtasks_look_at_the_same_times(tmp_path: Path) -> None:
    clock = Clock()
    readers = readers_of(hg.sources.files(tmp_path, format="csv", schema=SCHEMA, watch=True, interval=5), clock, 3)
    for delay, reader in zip((0, 1.5, 3), readers, strict=True):
        clock.now += delay
        assert reader.read() is None
    assert {reader.next_read() for reader in readers} == {105.0}


def test_a_clock_that_is_set_back_does_not_delay_the_next_look(tmp_path: Path) -> None:
    clock = Clock()
    [reader] = readers_of(hg.sources.files(tmp_path, format="csv", schema=SCHEMA, watch=True, interval=5), clock, 1)
    assert reader.read() is None
    put(tmp_path, "a.csv", "a\n1\n")
    clock.now -= 3600
    assert reader.read() is not None
    assert clock.now < reader.next_read() <= clock.now + 5  # type: ignore[operator]


@pytest.mark.parametrize("files", [1, 2])
def test_windows_fire_with_fewer_files_than_subtasks(tmp_path: Path, files: int) -> None:
    env = hg.StreamEnvironment(parallelism=4, deployment=hg.LocalDeployment(2, processes=False))
    schema = pa.schema({"a": pa.int64(), "at": pa.timestamp("s")})
    source = hg.sources.files(tmp_path, format="csv", schema=schema, watch=True, interval="20 ms")
    fired = hg.sinks.collect()
    stream = env.from_source(source, watermark=hg.Watermark("at"))
    stream.key_by("a").window(hg.tumble("1 min")).aggregate(rows=hg.count()).sink_to(fired)
    for number in range(files):
        put(tmp_path, f"{number}.csv", "a,at\n1,2024-01-01T00:00:00\n1,2024-01-01T00:02:00\n")
    job = env.execute_async()
    try:
        eventually(lambda: fired.rows or job.status() == "FAILED", timeout=60)
        if not fired.rows:
            job.wait(0)
    finally:
        job.cancel()
    assert fired.to_table()["rows"].to_pylist() == [files]
