"""The source of JSON lines: types, missing members, splits, and the exact place of bad lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from tests.examples import examples

Read = Callable[..., list[pa.Table]]
SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
OBJECTS = st.fixed_dictionaries(
    {}, optional={"a": st.none() | st.integers(-(1 << 63), (1 << 63) - 1), "b": st.none() | st.text(), "c": st.text()}
)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_types_are_guessed_from_the_first_file(tmp_path: Path, read_source: Read) -> None:
    path = write(
        tmp_path / "a.jsonl",
        '{"n": 1, "x": 1.5, "s": "é", "t": "2013-01-01T05:00:00", "none": null, "list": [{"y": null}]}\n{"n": 2}\n',
    )
    source = hg.sources.json_lines(path)
    assert source.schema.names == ["n", "x", "s", "t", "none", "list"]
    assert source.schema.types == [
        pa.int64(), pa.float64(), pa.string(), pa.timestamp("s"), pa.string(), pa.list_(pa.struct({"y": pa.string()})),
    ]  # fmt: skip
    first, second = read_source(source)[0].to_pylist()
    assert first["t"] == datetime(2013, 1, 1, 5)
    assert first["list"] == [{"y": None}]
    assert second["n"] == 2


def test_a_schema_chooses_members(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"z": [1, null], "b": "x"}\r\n\r\n  \n{"a": 2, "z": 5}\n{}')
    assert read_source(hg.sources.json_lines(path, schema=SCHEMA))[0].to_pydict() == {
        "a": [None, 2, None], "b": ["x", None, None],
    }  # fmt: skip


def test_times_and_dates_of_all_types_are_read(tmp_path: Path, read_source: Read) -> None:
    kinds = {"u": pa.timestamp("us", "UTC"), "n": pa.timestamp("us"), "d": pa.date32()}
    rows = [
        '{"u": "2020-01-01T00:00:00Z", "n": "2020-01-01T00:00:00", "d": "2020-01-01"}',
        '{"u": "2020-01-01T02:00:00+02:00"}',
        '{"u": "2020-01-01T00:00:00"}',
    ]
    table = read_source(hg.sources.json_lines(write(tmp_path / "t", "\n".join(rows)), schema=pa.schema(kinds)))[0]
    assert table["u"].to_pylist() == [datetime(2020, 1, 1, tzinfo=UTC)] * 3
    first = table.slice(0, 1).to_pylist()[0]
    assert (first["n"], first["d"]) == (datetime(2020, 1, 1), date(2020, 1, 1))


@settings(deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(objects=st.lists(OBJECTS, min_size=1, max_size=12), parallelism=st.integers(1, 3))
def test_splits_of_every_size_give_the_same_rows(
    tmp_path: Path, read_source: Read, objects: list[dict[str, object]], parallelism: int
) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(objects))
    path = write(tmp_path / "s.jsonl", lines)
    expected = [(row.get("a"), row.get("b")) for row in objects]
    for split_size in {1, 7, len(lines.encode())}:
        parts = read_source(hg.sources.json_lines(path, schema=SCHEMA, split_size=split_size), parallelism)
        rows = [(row["a"], row["b"]) for part in parts for row in part.to_pylist()]
        assert sorted(rows, key=repr) == sorted(expected, key=repr), split_size


BAD = [
    ("null", "a line must hold one JSON object"),
    ("5", "a line must hold one JSON object"),
    ('{"a": 1} null', "a line must hold one JSON object, whole"),
    ('{"a": 1}{"a": 2}', "a line must hold one JSON object, whole"),
    ('{"a": "x"}', "column 'a' changed from number to string"),
    ('{"a": 1.5}', "Failed to convert JSON to int64, couldn't parse:1.5"),
    ('{"a": 1', "Missing a comma or '}' after an object member."),
    ('{"a": 1, "a": 2}', "column 'a' was specified twice"),
    (b'{"b": "\xff"}', "it is not UTF-8: invalid start byte"),
]


@pytest.mark.parametrize("around", [0, 1, 300])
@pytest.mark.parametrize(("line", "reason"), BAD)
def test_a_bad_line_is_named_with_file_offset_text_and_reason(
    tmp_path: Path, read_source: Read, around: int, line: str | bytes, reason: str
) -> None:
    good, bad = b'{"a": 1}\n\n' * around, line.encode() if isinstance(line, str) else line
    path = write(tmp_path / "bad.jsonl", good + bad + b"\n" + good)
    with pytest.raises(hg.SourceError) as caught:
        read_source(hg.sources.json_lines(path, schema=SCHEMA))
    text = bad.decode("utf-8", "backslashreplace")
    assert str(caught.value) == (
        f"{path}: bad line at byte {len(good)}: {reason}. The line is: {text!r}. "
        "Correct it, give a schema= that fits, or read such lines with side_output('bad')"
    )


def test_a_null_that_the_schema_excludes_is_a_bad_line(tmp_path: Path, read_source: Read) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    path = write(tmp_path / "n.jsonl", '{"a": 1}\n{"b": 1}\n')
    with pytest.raises(
        hg.SourceError, match="bad line at byte 9: column 'a': null, but the schema does not allow nulls"
    ):
        read_source(hg.sources.json_lines(path, schema=schema))


def test_impossible_arguments_and_files_are_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n')
    for schema in (pa.schema([]), pa.schema([("a", pa.int64()), ("a", pa.int64())])):
        with pytest.raises(hg.ConfigError, match="must have columns, and no name twice"):
            hg.sources.json_lines(path, schema=schema)
    with pytest.raises(hg.ConfigError, match="column 'm' cannot be read from JSON as map"):
        hg.sources.json_lines(path, schema=pa.schema({"m": pa.map_(pa.string(), pa.int64())}))
    for text, words in [
        ("", "all files are empty"), ("{}\n", "its objects have no members"), ("null\n", "the types cannot be guessed"),
        ('{"a": 1}\n{"a": "x"}\n', "the types cannot be guessed: "), ('{"a": ' + "[" * 200_000, "levels of nesting"),
    ]:  # fmt: skip
        with pytest.raises(hg.SourceError, match=words):
            hg.sources.json_lines(write(path, text))
