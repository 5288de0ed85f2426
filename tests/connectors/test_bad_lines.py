"""The side output of bad lines: it has each bad line and its place, and every good line is still a row."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.connectors.connector import Source
from headgate.connectors.file_sources.csv_parser import CsvParser
from headgate.connectors.file_sources.line_source import BAD_LINES
from tests.connectors.conftest import drain, read_source, reader_context
from tests.examples import examples

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
GOOD = st.sampled_from(["1,x", "2,", "-3,é", "4,long " * 5])
WRONG = st.sampled_from(["oops", "x,y", "1,2,3", "1,é,", '5,"', "é"])


def read(source: Source, parallelism: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows and the bad lines of all subtasks."""
    source.prepare()
    rows: list[dict[str, Any]] = []
    bad: list[pa.RecordBatch] = []
    for subtask in range(parallelism):
        context = reader_context(subtask, parallelism, bad=bad.append)
        rows += [row for batch in drain(source.reader(context)) for row in batch.to_pylist()]
    for batch in bad:
        assert batch.schema == BAD_LINES
        batch.validate(full=True)
    return rows, sorted((row for batch in bad for row in batch.to_pylist()), key=lambda row: (row["file"], row["line"]))


def expected_of(path: Path, lines: Sequence[str], header: int = 1) -> list[tuple[str, int, int, str]]:
    """Return the file, offset, number and text of each bad line."""
    bad, offset = [], sum(map(len, ["a,b\n"] * header))
    for number, line in enumerate(lines, start=1 + header):
        if line.count(",") != 1 or '"' in line or line.startswith("x"):
            bad.append((str(path), offset, number, line))
        offset += len(line.encode()) + 1
    return bad


@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(GOOD | WRONG, min_size=1, max_size=20),
    split_size=st.integers(1, 200),
    parallelism=st.integers(1, 3),
)
def test_every_bad_line_has_its_place_whatever_the_splits(
    tmp_path: Path, lines: list[str], split_size: int, parallelism: int
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{line}\n" for line in lines))
    rows, bad = read(hg.sources.csv(path, schema=SCHEMA, split_size=split_size), parallelism)
    expected = expected_of(path, lines)
    assert [(row["file"], row["offset"], row["line"], row["text"]) for row in bad] == expected
    assert all(row["error"] for row in bad)
    good = [line for line in lines if line not in {text for _, _, _, text in expected}]
    assert sorted(f"{row['a']},{row['b'] or ''}" for row in rows) == sorted(good)


def test_bad_lines_in_many_blocks_of_a_compressed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.connectors.file_sources.lines.BLOCK_BYTES", 50)
    lines = [f"{number},x" if number % 7 else f"bad {number}" for number in range(200)]
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(("a,b\n" + "\n".join(lines)).encode()))
    rows, bad = read(hg.sources.csv(path, schema=SCHEMA), 1)
    assert len(rows) == 171
    assert [(row["line"], row["text"]) for row in bad] == [
        (number + 2, line) for number, line in enumerate(lines) if line.startswith("bad")
    ]
    assert [row["offset"] for row in bad] == [offset for _, offset, _, _ in expected_of(path, lines)]


@pytest.mark.parametrize("make", [hg.sources.json_lines, hg.sources.text])
def test_bad_lines_of_json_and_text_files(tmp_path: Path, make: Callable[..., Source]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b'{"value": "1"}\n{"value": "\xff"}\n{"value": "2"}\n')
    options = {"schema": pa.schema({"value": pa.string()})} if make is hg.sources.json_lines else {}
    rows, bad = read(make(path, **options), 1)
    assert len(rows) == 2
    [line] = bad
    assert (line["offset"], line["line"], line["error"]) == (15, 2, "it is not UTF-8: invalid start byte")
    assert line["text"] == r'{"value": "\xff"}'


def test_the_side_output_has_the_whole_text_of_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "x" * 5000 + ",y\n")
    _, [bad] = read(hg.sources.csv(path, schema=SCHEMA), 1)
    assert bad["text"] == "x" * 5000 + ",y"


def test_a_file_of_bad_lines_alone_is_read_in_reasonable_time(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "oops\n" * 3000)
    rows, bad = read(hg.sources.csv(path, schema=SCHEMA), 1)
    assert rows == []
    assert [row["line"] for row in bad] == list(range(2, 3002))


def test_a_read_takes_a_bounded_time_however_many_lines_are_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a read a source can neither be cancelled nor send a barrier. So it returns an empty batch in between."""
    attempts: list[bytes] = []
    parse = CsvParser._parse
    monkeypatch.setattr(CsvParser, "_parse", lambda self, lines: (attempts.append(lines), parse(self, lines))[1])
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "oops\n" * 500 + "1,x\n" + "oops\n" * 500)
    source, bad = hg.sources.csv(path, schema=SCHEMA), []
    source.prepare()
    context = reader_context(bad=bad.append)
    reader, rows = source.reader(context), 0
    while not reader.finished:
        attempts.clear()
        batch = reader.read()
        rows += batch.num_rows if batch is not None else 0
        assert len(attempts) <= 64
    assert rows == 1
    lines = [line for batch in bad for line in batch["line"].to_pylist()]
    assert lines == [*range(2, 502), *range(503, 1003)]


def test_lines_before_a_split_are_counted_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.connectors.file_sources.line_source.BLOCK_BYTES", 10)
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,x\n" * 50 + "oops\n")
    source, bad = hg.sources.csv(path, schema=SCHEMA, split_size=203), []
    source.prepare()
    context = reader_context(1, 2, bad=bad.append)
    batches = drain(source.reader(context))
    assert [batch.num_rows for batch in batches] == [0] * 22  # for 204 bytes before the split, and its own line
    assert [line for batch in bad for line in batch["line"].to_pylist()] == [52]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_reads_good_rows_and_bad_lines(tmp_path: Path, parallelism: int) -> None:
    lines = [f"{number},x" if number % 7 else f"bad {number}" for number in range(1000)]
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "\n".join(lines))
    env = hg.StreamEnvironment(parallelism=parallelism, deployment=hg.LocalDeployment(2, processes=parallelism > 1))
    stream = env.from_source(hg.sources.csv(path, schema=SCHEMA, split_size="1 kb"))
    bad = hg.sinks.collect()
    stream.side_output("bad").filter("line > 100").sink_to(bad)
    total = stream.key_by().aggregate(final=True, rows=hg.count(), total=hg.sum("a")).collect().to_pylist()
    good = [number for number in range(1000) if number % 7]
    assert total == [{"rows": len(good), "total": sum(good)}]
    assert sorted(bad.to_table()["line"].to_pylist()) == [n + 2 for n in range(0, 1000, 7) if n + 2 > 100]


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("headgate.connectors.file_sources.lines.BLOCK_BYTES", 50)
    monkeypatch.setattr("headgate.connectors.file_sources.lines.LONGEST_LINE", 100)
    monkeypatch.setattr("headgate.connectors.file_sources.line_source.LONGEST_LINE", 100)
    return 100


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize("split_size", [1, 60, 1000])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_line_that_is_too_long(tmp_path: Path, name: str, split_size: int) -> None:
    path = tmp_path / name
    text = "a,b\n1,x\n" + "2," + "y" * 500 + "\n3,z\noops\n" + "4" * 101
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    rows, bad = read(hg.sources.csv(path, schema=SCHEMA, split_size=split_size), 2)
    assert sorted(row["a"] for row in rows) == [1, 3]
    assert [(row["offset"], row["line"], row["text"][:5]) for row in bad] == [
        (8, 3, "2,yyy"), (511 + 4, 5, "oops"), (511 + 9, 6, "44444")
    ]  # fmt: skip
    assert bad[0]["error"] == bad[2]["error"] == "it is longer than 100 bytes"
    with pytest.raises(hg.SourceError, match="bad line at byte 8: it is longer than 100 bytes"):
        read_source(hg.sources.csv(path, schema=SCHEMA, split_size=split_size))


@pytest.mark.usefixtures("short_limit")
def test_reading_resumes_at_every_place_around_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n" + "2," + "y" * 500 + "\n3,z\noops\n" + "4" * 400 + "\n5,v\n")
    source: Any = hg.sources.csv(path, schema=SCHEMA)
    [file] = source.files()
    bad: list[pa.RecordBatch] = []
    places = []
    seen: list[tuple[list[object], int]] = [([], 0)]
    for batch, place in source.read_file(file, None, bad.append):
        places.append(place)
        seen.append((seen[-1][0] + batch["a"].to_pylist(), sum(each.num_rows for each in bad)))
    assert seen[-1] == ([1, 3, 5], 3)
    assert len(places) > 15
    for (rows, bad_lines), place in zip(seen[1:], places, strict=True):
        again: list[pa.RecordBatch] = []
        rest = [row for batch, _ in source.read_file(file, place, again.append) for row in batch["a"].to_pylist()]
        assert (rows + rest, bad_lines + sum(batch.num_rows for batch in again)) == ([1, 3, 5], 3), place


@pytest.mark.usefixtures("short_limit")
def test_a_header_or_first_line_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a" * 200 + "\n1\n")
    with pytest.raises(
        hg.SourceError, match=r"a\.csv: the first line has more than 16384 values; check that this is a CSV file"
    ):
        hg.sources.csv(path)
    with pytest.raises(hg.SourceError, match=r"a\.csv: the line at byte 0 is longer than 100 bytes"):
        hg.sources.json_lines(path)


def test_bad_lines_fail_the_job_unless_it_reads_their_side_output(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\noops\n")
    stream = hg.StreamEnvironment().from_source(hg.sources.csv(path, schema=SCHEMA))
    stream.side_output("bad")
    with pytest.raises(hg.SourceError, match="bad line at byte 8.*or read such lines with side_output"):
        stream.collect()
    assert stream.side_output("bad").collect()["line"].to_pylist() == [3]
