"""The source of CSV files: types, nulls, splits at every offset, and the exact place of bad lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.connectors.file_sources import lines
from tests.examples import examples

Read = Callable[..., list[pa.Table]]
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_types_are_guessed_from_the_first_file(tmp_path: Path, read_source: Read) -> None:
    write(tmp_path / "1.csv", "n,x,s,t,none\n1,1.5,a,2013-01-01 05:00:00,\n,,,,\n")
    write(tmp_path / "2.csv", "none,n,x,s,t\nlater,7,2.5,b,2013-01-02T00:00:00\n")
    source = hg.sources.csv(tmp_path / "*.csv")
    assert source.schema.names == ["n", "x", "s", "t", "none"]
    assert source.schema.types == [pa.int64(), pa.float64(), pa.string(), pa.timestamp("s"), pa.string()]
    assert read_source(source)[0].to_pylist() == [
        {"n": 1, "x": 1.5, "s": "a", "t": datetime(2013, 1, 1, 5), "none": None},
        {"n": None, "x": None, "s": None, "t": None, "none": None},
        {"n": 7, "x": 2.5, "s": "b", "t": datetime(2013, 1, 2), "none": "later"},
    ]


def test_a_schema_chooses_columns_by_name_or_position(tmp_path: Path, read_source: Read) -> None:
    with_header = write(tmp_path / "h.csv", "x,b,a\n9,one,1\n9,two,2\n")
    without = write(tmp_path / "p.csv", "1;one\n2;two\n")
    expected = [{"a": 1, "b": "one"}, {"a": 2, "b": "two"}]
    assert read_source(hg.sources.csv(with_header, schema=SCHEMA))[0].to_pylist() == expected
    source = hg.sources.csv(without, schema=SCHEMA, header=False, delimiter=";")
    assert read_source(source)[0].to_pylist() == expected
    assert hg.sources.csv(without, header=False, delimiter=";").schema.names == ["f0", "f1"]


def test_only_unquoted_values_are_null(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "n.csv", 'a,b\nNA,NA\n1,"NA"\n2,\n3,""\n4,"say ""hi"", all"\n')
    table = read_source(hg.sources.csv(path, schema=SCHEMA, null_values=["NA"]))[0]
    assert table.to_pydict() == {"a": [None, 1, 2, 3, 4], "b": [None, "NA", "", "", 'say "hi", all']}
    path = write(tmp_path / "d.csv", 'a,b\n1,\n2,""\n')
    assert read_source(hg.sources.csv(path, schema=SCHEMA))[0]["b"].to_pylist() == [None, ""]


@pytest.mark.parametrize("times", [["00:00:00Z", "01:00:00+01:00"], ["00:00:00", "00:00"], ["00:00:00", "01:00:00+01"]])
def test_a_time_without_zone_is_utc_where_the_column_has_one(
    tmp_path: Path, read_source: Read, times: list[str]
) -> None:
    path = write(tmp_path / "t.csv", "t\nNA\n" + "".join(f"2013-01-01 {time}\n" for time in times))
    schema = pa.schema({"t": pa.timestamp("us", "UTC")})
    table = read_source(hg.sources.csv(path, schema=schema, null_values=["NA"]))[0]
    assert table["t"].to_pylist() == [None, datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 1, tzinfo=UTC)]


def test_line_ends_byte_order_mark_and_blank_lines(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "w.csv", b"\xef\xbb\xbfa,b\r\n1,\xc3\xa9\r\n\r\n2,y")
    assert read_source(hg.sources.csv(path, schema=SCHEMA))[0].to_pydict() == {"a": [1, 2], "b": ["é", "y"]}
    path = write(tmp_path / "w2.csv", b"\xef\xbb\xbf1,x\n")
    assert read_source(hg.sources.csv(path, schema=SCHEMA, header=False))[0].to_pydict() == {"a": [1], "b": ["x"]}


def test_empty_and_header_only_files_have_no_rows(tmp_path: Path, read_source: Read) -> None:
    write(tmp_path / "empty.csv", "")
    write(tmp_path / "header.csv", "a,b\n")
    assert read_source(hg.sources.csv(tmp_path, schema=SCHEMA))[0].num_rows == 0
    with pytest.raises(hg.SourceError, match=r"header\.csv: has no rows to guess the types from; give schema="):
        hg.sources.csv(tmp_path)


@settings(deadline=None, max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(st.text("aé\"', ", max_size=5), min_size=1, max_size=12),
    header=st.booleans(),
    parallelism=st.integers(1, 3),
)
def test_splits_of_every_size_give_the_same_rows(
    tmp_path: Path, read_source: Read, names: list[str], header: bool, parallelism: int
) -> None:
    table = pa.table({"a": range(len(names)), "b": names}, SCHEMA)
    quoted = "".join('{},"{}"\n'.format(row["a"], row["b"].replace('"', '""')) for row in table.to_pylist())
    path = write(tmp_path / "s.csv", ("a,b\n" if header else "") + quoted)
    for split_size in range(1, path.stat().st_size + 2):
        source = hg.sources.csv(path, schema=SCHEMA, header=header, split_size=split_size)
        parts = read_source(source, parallelism)
        assert pa.concat_tables(parts).sort_by("a").equals(table), split_size


def test_splits_go_to_subtasks_in_the_order_of_names_and_offsets(tmp_path: Path, read_source: Read) -> None:
    write(tmp_path / "b.csv", "a,b\n" + "".join(f"{i},y\n" for i in range(4)))
    write(tmp_path / "a.csv", "a,b\n" + "".join(f"{i},x\n" for i in range(4)))
    source = hg.sources.csv(tmp_path / "*.csv", schema=SCHEMA, split_size=10)  # two splits per file: 1 or 2 rows, rest
    first, second = read_source(source, 2)
    assert first.to_pydict() == {"a": [0, 1, 0, 1], "b": ["x", "x", "y", "y"]}
    assert second.to_pydict() == {"a": [2, 3, 2, 3], "b": ["x", "x", "y", "y"]}


def test_a_reader_has_the_number_of_its_split_and_finishes(tmp_path: Path, reader_context: Callable[..., Any]) -> None:
    write(tmp_path / "a.csv", "a,b\n1,x\n2,y\n3,z\n")
    source = hg.sources.csv(tmp_path / "a.csv", schema=SCHEMA, split_size=4)
    source.prepare()
    reader = source.reader(reader_context(0, 2))
    seen = []
    while (batch := reader.read()) is not None:
        seen.append((reader.split, batch.num_rows))
    assert (seen, reader.finished) == ([(0, 1), (2, 1)], True)
    assert source.reader(reader_context(7, 8)).finished


def test_compressed_files_are_one_split(tmp_path: Path, read_source: Read) -> None:
    two_members = gzip.compress(b"a,b\n1,x\n") + gzip.compress(b"2,y\n")
    path = write(tmp_path / "z.csv.gz", two_members)
    for parallelism in (1, 2):
        parts = read_source(hg.sources.csv(path, schema=SCHEMA, split_size=1), parallelism)
        assert [part.num_rows for part in parts] == [2, 0][:parallelism]
    assert hg.sources.csv(path).schema == SCHEMA


def test_large_blocks_come_as_batches_of_a_bounded_size(tmp_path: Path, reader_context: Callable[..., Any]) -> None:
    path = write(tmp_path / "l.csv", "a\n" + "1\n" * 200_000)
    source = hg.sources.csv(path)
    source.prepare()
    reader = source.reader(reader_context())
    sizes = []
    while (batch := reader.read()) is not None:
        sizes.append(batch.num_rows)
    assert sum(sizes) == 200_000
    assert max(sizes) == 65_536


BAD = [
    ("5,6,7", "CSV parse error: Expected 2 columns, got 3"),
    ("x,6", "column 'a': CSV conversion error to int64: invalid value 'x'"),
    ('5,"open', "a quoted value does not end on its line; values with line breaks are not supported"),
    ('5,"two\nlines"', "a quoted value does not end on its line; values with line breaks are not supported"),
    (b"5,\xff", "column 'b': CSV conversion error to string: invalid UTF8 data"),
]


@pytest.mark.parametrize("before", [0, 1, 500])
@pytest.mark.parametrize("after", [0, 1, 500])
@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_line_is_named_with_file_offset_text_and_reason(
    *, tmp_path: Path, read_source: Read, before: int, after: int, line: str | bytes, reason: str
) -> None:
    good = "a,b\n" + '1,"5 "" pipe"\n2,5" pipe\n\n' * before
    bad = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / "bad.csv", good.encode() + bad + b"\n" + b"9,z\n" * after + b"x\n" * (after > 1))
    with pytest.raises(hg.SourceError) as caught:
        read_source(hg.sources.csv(path, schema=SCHEMA))
    text = bad.split(b"\n")[0].decode("utf-8", "backslashreplace")
    assert str(caught.value) == (
        f"{path}: bad line at byte {len(good)}: {reason}. The line is: {text!r}. "
        "Correct it, give a schema= and null_values= that fit, or read such lines with side_output('bad')"
    )


@pytest.mark.parametrize("split_size", [1, 7, 1000])
@pytest.mark.parametrize("block", [1, 16])
def test_the_offset_of_a_bad_line_counts_from_the_files_beginning(
    tmp_path: Path, read_source: Read, monkeypatch: pytest.MonkeyPatch, split_size: int, block: int
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    path = write(tmp_path / "bad.csv", "a,b\n1,x\n2,y\noops,z\n4,w\n")
    with pytest.raises(hg.SourceError, match=r"bad line at byte 12: .*invalid value 'oops'.*'oops,z'"):
        read_source(hg.sources.csv(path, schema=SCHEMA, split_size=split_size))


def test_a_quote_within_a_value_is_text(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "q.csv", 'a,b\n1,5" pipe\n2,"6"" pipe"\n')
    assert read_source(hg.sources.csv(path, schema=SCHEMA))[0]["b"].to_pylist() == ['5" pipe', '6" pipe']


def test_a_long_bad_line_is_cut(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "bad.csv", "a,b\nx," + "y" * 500 + "\n")
    with pytest.raises(hg.SourceError) as caught:
        read_source(hg.sources.csv(path, schema=SCHEMA))
    assert f"'x,{'y' * 198}...'" in str(caught.value)


def test_a_bad_time_and_a_null_that_the_schema_excludes(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "t.csv", "t\n2013-01-01 00:00:00\nnoon\n")
    schema = pa.schema({"t": pa.timestamp("us", "UTC")})
    with pytest.raises(hg.SourceError, match=r"at byte 22: column 't': Failed to parse string: 'noon'"):
        read_source(hg.sources.csv(path, schema=schema))
    path = write(tmp_path / "n.csv", "a,b\n1,x\n,y\n")
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(hg.SourceError, match=r"at byte 8: column 'a': null, but the schema does not allow nulls"):
        read_source(hg.sources.csv(path, schema=schema))


def test_missing_and_duplicate_columns_are_refused(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "c.csv", "a,c\n1,2\n")
    with pytest.raises(hg.SourceError, match=r"c\.csv: has no column 'b'; its header is: a, c"):
        read_source(hg.sources.csv(path, schema=SCHEMA))
    path = write(tmp_path / "d.csv", "a,b,a\n1,2,3\n")
    with pytest.raises(hg.SourceError, match=r"d\.csv: has two columns 'a'; its header is: a, b, a"):
        read_source(hg.sources.csv(path, schema=SCHEMA))
    path = write(tmp_path / "e.csv", "\n1,2\n")
    with pytest.raises(hg.SourceError, match="the first line is blank; put the column names there"):
        hg.sources.csv(path)


def test_files_that_vanish_or_shrink_are_named(tmp_path: Path, reader_context: Callable[..., Any]) -> None:
    path = write(tmp_path / "v.csv", "a,b\n1,x\n2,y\n")
    source = hg.sources.csv(path, schema=SCHEMA)
    source.prepare()
    write(path, "a,b\n1,x\n")
    reader = source.reader(reader_context())
    assert reader.read().num_rows == 1
    with pytest.raises(hg.SourceError, match=r"v\.csv: became shorter while the job ran"):
        reader.read()
    path.unlink()
    with pytest.raises(hg.SourceError, match=r"v\.csv: no such file here; every machine that runs tasks"):
        source.reader(reader_context()).read()


def test_lines_appended_while_the_job_runs_are_not_read(tmp_path: Path, reader_context: Callable[..., Any]) -> None:
    path = write(tmp_path / "g.csv", "a,b\n1,x\n")
    source = hg.sources.csv(path, schema=SCHEMA)
    source.prepare()
    write(path, "a,b\n1,x\n2,y\n")
    reader = source.reader(reader_context())
    assert (reader.read().num_rows, reader.read()) == (1, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": "::"}, "delimiter='::' must be one character"),
        ({"null_values": "NA"}, r"null_values='NA' must be a list of strings, for example \['NA'\]"),
        ({"split_size": "1 parsec"}, "split_size: .*unknown unit 'parsec'"),
        ({"split_size": 0}, "split_size=0 must be at least 1 byte"),
        ({"schema": pa.schema({"a": pa.list_(pa.int64())})}, "column 'a' cannot be read from CSV as list"),
        ({"schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])}, "no name twice"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path: Path, options: dict[str, object], message: str) -> None:
    path = write(tmp_path / "o.csv", "a,b\n1,x\n")
    with pytest.raises(hg.ConfigError, match=message):
        hg.sources.csv(path, **{"schema": SCHEMA, **options})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a,b\r1,x\r2,y\r", r"its lines end in \\r alone"),
        ("a,b\n1,x\n".encode("utf-16"), "the first line is not UTF-8"),
    ],
    ids=["carriage returns", "utf-16"],
)
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["guessed", "given"])
def test_a_file_without_utf8_or_line_breaks_is_refused(
    tmp_path: Path, read_source: Read, data: bytes, words: str, schema: pa.Schema | None
) -> None:
    path = write(tmp_path / "f.csv", data)
    with pytest.raises(hg.SourceError, match=f"f.csv: {words}"):
        read_source(hg.sources.csv(path, schema=schema))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cell", ["T00" * 80_000, " 00" * 80_000 + "x", "2013-01-01 00:00:00" + "+" * 240_000])
def test_a_hostile_time_is_refused_quickly(tmp_path: Path, read_source: Read, cell: str) -> None:
    """Once it took minutes, in which the interpreter did nothing else, and the TaskManager was lost."""
    path = write(tmp_path / "t.csv", f"t\n{cell}\n")
    with pytest.raises(hg.SourceError, match="at byte 2: column 't'") as caught:
        read_source(hg.sources.csv(path, schema=pa.schema({"t": pa.timestamp("us", "UTC")})))
    assert len(caught.value.message) < 2000


@pytest.mark.timeout(60)
def test_a_file_of_very_many_columns_is_refused(tmp_path: Path, read_source: Read) -> None:
    """Each column takes memory in every block: once a line of commas took some GB."""
    path = write(tmp_path / "c.csv", "a" + "," * 500_000 + "\n")
    with pytest.raises(hg.SourceError, match=r"c\.csv: the first line has more than 16384 values"):
        read_source(hg.sources.csv(path, schema=pa.schema({"a": pa.int64()})))
    with pytest.raises(hg.SourceError, match=r"c\.csv: the first line has more than 16384 values"):
        hg.sources.csv(path)
