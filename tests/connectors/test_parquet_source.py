"""The source of Parquet files: row groups as splits, chosen columns, and files that differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import headgate as hg
from headgate.connectors.data_file import DataFile
from headgate.connectors.file_sources.parquet_source import pack_row_groups

Read = Callable[..., list[pa.Table]]


def write(path: Path, start: int, rows: int, row_group: int = 10) -> Path:
    table = pa.table({"a": range(start, start + rows), "b": [f"b{i}" for i in range(start, start + rows)]})
    pq.write_table(table.replace_schema_metadata({"made": "by hand"}), path, row_group_size=row_group)
    return path


def test_row_groups_go_to_subtasks_in_the_order_of_names(tmp_path: Path, read_source: Read) -> None:
    write(tmp_path / "2.parquet", 25, 20)
    write(tmp_path / "1.parquet", 0, 25)
    source = hg.sources.parquet(tmp_path, split_size=1)
    assert source.schema.metadata is None
    first, second = read_source(source, 2)  # splits: 0-9, 10-19, 20-24, 25-34, 35-44
    assert first["a"].to_pylist() == [*range(10), *range(20, 25), *range(35, 45)]
    assert second["b"].to_pylist() == [f"b{i}" for i in [*range(10, 20), *range(25, 35)]]


def test_row_groups_are_packed_up_to_the_split_size(tmp_path: Path, read_source: Read) -> None:
    path = write(tmp_path / "1.parquet", 0, 40)
    group = pq.read_metadata(path).row_group(0).total_byte_size
    parts = read_source(hg.sources.parquet(path, split_size=2 * group + group // 2), 2)
    assert [part["a"].to_pylist() for part in parts] == [list(range(20)), list(range(20, 40))]
    assert [part.num_rows for part in read_source(hg.sources.parquet(path), 2)] == [40, 0]


def test_chosen_columns_come_in_the_order_of_the_argument(tmp_path: Path, reader_context: Callable[..., Any]) -> None:
    source = hg.sources.parquet(write(tmp_path / "1.parquet", 0, 7), columns=["b", "a"], batch_rows=3)
    source.prepare()
    reader = source.reader(reader_context())
    batches = [reader.read() for _ in range(3)]
    assert [batch.num_rows for batch in batches] == [3, 3, 1]
    assert {tuple(batch.schema.names) for batch in batches} == {("b", "a")} == {tuple(source.schema.names)}
    assert (reader.read(), reader.finished) == (None, True)


def test_texts_come_with_the_dictionaries_of_the_files_that_have_some(tmp_path: Path, read_source: Read) -> None:
    rows = pa.table({"s": ["one", None, "two"] * 100, "t": [f"text {n}" for n in range(300)], "n": range(300)})
    pq.write_table(rows, tmp_path / "1.parquet", row_group_size=100)
    pq.write_table(rows, tmp_path / "2.parquet", row_group_size=100, use_dictionary=False)
    source = hg.sources.parquet(tmp_path, batch_rows=40, split_size=1).with_dictionaries(["s", "n"])
    text = pa.dictionary(pa.int32(), pa.string())
    assert source.schema.types == [text, pa.string(), pa.int64()]
    (found,) = read_source(source, 1)
    sizes = [len(chunk.dictionary) for chunk in found["s"].chunks]
    assert set(sizes[: len(sizes) // 2]) == {2}, "the dictionary of the row group"
    assert min(sizes[len(sizes) // 2 :]) > 2, "without one, each row has its own text"
    assert found["s"].cast(pa.string()).to_pylist() == rows["s"].to_pylist() * 2
    assert found.select(["t", "n"]).equals(pa.concat_tables([rows, rows]).select(["t", "n"]))
    assert read_source(source.reading(["s"]), 1)[0]["t"].null_count == 600


def test_an_error_about_different_schemas_names_both_files(tmp_path: Path, read_source: Read) -> None:
    first = write(tmp_path / "1.parquet", 0, 3)
    second = tmp_path / "2.parquet"
    pq.write_table(pa.table({"a": [1.5], "b": ["x"]}), second)
    with pytest.raises(hg.SourceError) as caught:
        read_source(hg.sources.parquet(tmp_path))
    assert str(caught.value) == (
        f"{second}: its columns (a double, b string) differ from the columns of {first} (a int64, b string); "
        "all files must agree, at least in the columns named by columns="
    )
    assert read_source(hg.sources.parquet(tmp_path, columns=["b"]))[0]["b"].to_pylist() == ["b0", "b1", "b2", "x"]


def test_missing_columns_and_broken_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "1.parquet", 0, 3)
    with pytest.raises(hg.SourceError, match=r"1\.parquet: has no column 'c'; it has: a, b"):
        hg.sources.parquet(path, columns=["a", "c"])
    path.write_bytes(b"not parquet at all")
    with pytest.raises(hg.SourceError, match=r"1\.parquet: cannot be read: .*magic bytes"):
        hg.sources.parquet(path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "1.parquet")
    with pytest.raises(
        hg.SourceError, match=r"1\.parquet: has two columns with the same name; .* \(a int64, a int64\)"
    ):
        hg.sources.parquet(tmp_path)


@pytest.mark.timeout(60)
def test_very_many_row_groups_are_packed_quickly() -> None:
    file = DataFile(fs.LocalFileSystem(), "many.parquet", 1)
    splits = pack_row_groups(file, [100] * 200_000, 1_000_000)
    assert [len(split.numbers) for split in splits] == [10_000] * 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "a"}, "columns='a' must be a list"),
        ({"columns": ["a", "a"]}, "without repetition"),
        ({"batch_rows": 0}, "batch_rows=0 must be at least 1"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(hg.ConfigError, match=message):
        hg.sources.parquet(write(tmp_path / "1.parquet", 0, 3), **options)
