"""File sinks: files stay hidden until they are committed, in every mode and after every failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import headgate as hg
from headgate.connectors.file_sinks import file_sink, file_writer, hidden_files
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.connectors.file_sinks.partition_by import by_folder
from tests.connectors.conftest import start

Write = Callable[..., list[Any]]
SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64()})


def batch(*rows: tuple[str | None, int | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "v": v} for k, v in rows], SCHEMA)


def files(root: Path) -> list[str]:
    """Return the names of all files except for the ledger's."""
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if path.parts[0] != ".headgate")


def visible(root: Path) -> list[str]:
    return [name for name in files(root) if not os.path.basename(name).startswith("_")]


@pytest.mark.parametrize("make", [hg.sinks.parquet, hg.sinks.csv])
def test_files_show_at_commit_and_only_then(tmp_path: Path, write_sink: Write, make: Callable[..., FileSink]) -> None:
    out = tmp_path / "new" / "out"
    sink = make(out)
    start(sink, SCHEMA)
    pending = write_sink(sink, [[batch(("a", 1), (None, 2))], [batch(("", None))], []], SCHEMA)
    assert (len(files(out)), visible(out)) == (2, [])
    sink.commit(pending)
    names = visible(out)
    assert len(names) == 2 == len(files(out))
    assert all(name.startswith("part-job-1-") for name in names)
    sink.commit(pending)
    assert visible(out) == names
    source = hg.sources.parquet(out) if make is hg.sinks.parquet else hg.sources.csv(out, schema=SCHEMA)
    source.prepare()
    assert ds.dataset(out, format="parquet" if make is hg.sinks.parquet else "csv").count_rows() == 3
    assert source.schema == SCHEMA


def test_csv_keeps_null_and_the_empty_text_apart(tmp_path: Path, write_sink: Write, read_source: Any) -> None:
    rows = [("", 1), (None, None), ('say "hi", é', 3), ("NA", 4)]
    sink = hg.sinks.csv(tmp_path)
    start(sink, SCHEMA)
    sink.commit(write_sink(sink, [[batch(*rows)]], SCHEMA))
    table = read_source(hg.sources.csv(tmp_path, schema=SCHEMA))[0]
    assert list(zip(*table.to_pydict().values(), strict=True)) == rows


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_csv_refuses_a_null_in_the_only_column(
    tmp_path: Path, write_sink: Write, read_source: Any, partition_by: Any
) -> None:
    """It would be an empty line, which `hg.sources.csv` and other readers skip. An empty text has quotes."""
    rows = batch(("a", 1), ("a", None))
    rows = rows if partition_by else pa.record_batch({"k": ["a", None]})
    sink = hg.sinks.csv(tmp_path, partition_by=partition_by)
    start(sink, rows.schema)
    with pytest.raises(hg.SinkError, match=r"_part-.*: '[kv]' is the only column of the file, .*write Parquet or JSON"):
        write_sink(sink, [[rows]], rows.schema)
    sink = hg.sinks.csv(tmp_path / "texts")
    texts = pa.record_batch({"s": ["", "a", ""]})
    start(sink, texts.schema)
    sink.commit(write_sink(sink, [[texts]], texts.schema))
    [table] = read_source(hg.sources.csv(tmp_path / "texts", schema=texts.schema))
    assert table.to_pydict() == texts.to_pydict()


@pytest.mark.parametrize("partition_by", ["k", ["k"]])
def test_partitions_are_folders_with_the_names_of_hive(
    tmp_path: Path, write_sink: Write, partition_by: str | list[str]
) -> None:
    keys = ["a", None, "x/y=z%", "é ü", "a", "b:c"]
    sink = hg.sinks.parquet(tmp_path, partition_by=partition_by)
    start(sink, SCHEMA)
    sink.commit(write_sink(sink, [[batch(*((key, i) for i, key in enumerate(keys)))]], SCHEMA))
    assert sorted(os.listdir(tmp_path)) == sorted(
        [".headgate", "k=a", "k=__HIVE_DEFAULT_PARTITION__", "k=x%2Fy%3Dz%25", "k=é ü", "k=b%3Ac"]
    )
    expected = sorted(((i, key) for i, key in enumerate(keys)), key=lambda row: row[0])
    by_arrow = ds.dataset(tmp_path, partitioning=ds.partitioning(pa.schema({"k": pa.string()}), flavor="hive"))
    assert [(row["v"], row["k"]) for row in by_arrow.to_table().sort_by("v").to_pylist()] == expected
    query = f"select v, k from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning=true) order by v"
    assert duckdb.sql(query).fetchall() == expected


def test_partitions_of_several_columns_and_types(tmp_path: Path, write_sink: Write) -> None:
    schema = pa.schema({"d": pa.date32(), "x": pa.float64(), "b": pa.bool_(), "n": pa.int8()})
    rows = [(date(2013, 1, i % 2 + 1), i / 2, i % 3 == 0, None if i == 5 else i % 2) for i in range(12)]
    rows = pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    sink = hg.sinks.csv(tmp_path, partition_by=["d", "n", "b"])
    start(sink, schema)
    sink.commit(write_sink(sink, [[rows.slice(0, 7), rows.slice(7)]], schema))
    folders = {os.path.dirname(name) for name in visible(tmp_path)}
    assert len(folders) == 5
    assert "d=2013-01-02/n=__HIVE_DEFAULT_PARTITION__/b=false" in folders
    (name,) = [name for name in visible(tmp_path) if name.startswith("d=2013-01-01/n=0/b=true/")]
    assert (tmp_path / name).read_text() == '"x"\n0\n3\n'


def test_a_job_without_rows_leaves_the_schema(tmp_path: Path, write_sink: Write) -> None:
    sink = hg.sinks.parquet(tmp_path, partition_by="k")
    start(sink, SCHEMA)
    sink.commit(write_sink(sink, [[], []], SCHEMA))
    assert files(tmp_path) == []
    sink.finish()
    sink.finish()
    (name,) = files(tmp_path)
    assert not name.startswith("_")
    assert pq.read_table(tmp_path / name).schema == SCHEMA


class _Removing(fs.LocalFileSystem):
    """A filesystem where another job removes the empty folder before each of the first files is opened."""

    removals = 3

    def open_output_stream(self, path: str, **options: Any) -> pa.NativeFile:
        if self.removals:
            self.removals -= 1
            os.rmdir(os.path.dirname(path))
        return super().open_output_stream(path, **options)


def test_a_folder_that_another_job_removes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_sink: Write
) -> None:
    monkeypatch.setattr(file_sink, "locate", lambda path: (_Removing(), str(path)))
    sink = hg.sinks.csv(tmp_path / "out", partition_by="k")
    start(sink, SCHEMA)
    sink.commit(write_sink(sink, [[batch(("a", 1))]], SCHEMA))
    [name] = visible(tmp_path / "out")
    assert name.startswith("k=a/")


def test_mode_error_wants_an_empty_folder(tmp_path: Path) -> None:
    sink = hg.sinks.parquet(tmp_path)
    (tmp_path / "_part-other-job.parquet").touch()
    (tmp_path / ".hidden").touch()
    start(sink, SCHEMA)
    (tmp_path / "k=a").mkdir()
    (tmp_path / "k=a" / "old.parquet").touch()
    with pytest.raises(hg.SinkError, match=r"the folder is not empty \(it has k=a/old\.parquet\); choose another, or"):
        start(sink, SCHEMA)
    sink.abort()
    assert "k=a/old.parquet" in files(tmp_path)


def test_mode_append_adds_and_overwrite_empties_when_the_job_starts(tmp_path: Path, write_sink: Write) -> None:
    def run(mode: Any, value: int) -> None:
        sink = hg.sinks.parquet(tmp_path, mode=mode)
        start(sink, SCHEMA)
        sink.commit(write_sink(sink, [[batch(("a", value))]], SCHEMA))

    run("error", 1)
    run("append", 2)
    assert sorted(pq.read_table(tmp_path)["v"].to_pylist()) == [1, 2]
    (tmp_path / "k=b").mkdir()
    run("overwrite", 3)
    assert pq.read_table(tmp_path)["v"].to_pylist() == [3]
    assert len(files(tmp_path)) == 1
    assert sorted(os.listdir(tmp_path)) == sorted([".headgate", *files(tmp_path)])


def test_overwrite_removes_the_files_of_a_job_that_still_runs(tmp_path: Path, write_sink: Write) -> None:
    other, sink = (hg.sinks.parquet(tmp_path, mode=mode) for mode in ("append", "overwrite"))
    start(other, SCHEMA)
    start(sink, SCHEMA)
    stale = write_sink(other, [[batch(("a", 1))]], SCHEMA)
    says = "was removed, by hand or by another job that writes there with mode='overwrite'"
    for act in (partial(other.commit, stale, 1), partial(other._ledger.show, 1)):
        with pytest.raises(hg.Superseded, match=says):
            act()
    sink.commit(write_sink(sink, [[batch(("b", 2))]], SCHEMA))
    sink.finish()
    assert pq.read_table(tmp_path)["v"].to_pylist() == [2]
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_abort_leaves_nothing_of_this_run(
    tmp_path: Path, write_sink: Write, writer_context: Any, partition_by: Any
) -> None:
    other = hg.sinks.parquet(tmp_path, partition_by=partition_by)
    start(other, SCHEMA)
    other_pending = write_sink(other, [[batch(("a", 1))]], SCHEMA)
    before = files(tmp_path)
    sink = hg.sinks.parquet(tmp_path, mode="append", partition_by=partition_by)
    start(sink, SCHEMA)
    pending = write_sink(sink, [[batch(("a", 2), ("b", 3))]], SCHEMA)
    killed = sink.writer(writer_context(SCHEMA, 1))
    killed.write(batch(*[("c", i) for i in range(70_000)]))
    assert len(files(tmp_path)) > len(before) + 1
    sink.commit(pending[:1])
    sink.abort()
    sink.abort()
    killed.close()
    assert files(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == sorted([".headgate", *(["k=a"] if partition_by else before)])
    other.commit(other_pending)
    assert len(visible(tmp_path)) == 1


def test_abort_removes_the_folder_that_it_made_and_no_other(tmp_path: Path, write_sink: Write) -> None:
    for out in (tmp_path / "new", tmp_path):
        sink = hg.sinks.csv(out, mode="append", partition_by="k")
        start(sink, SCHEMA)
        write_sink(sink, [[batch(("a", 1))]], SCHEMA)
        sink.abort()
    assert os.listdir(tmp_path) == []


def test_two_sinks_of_one_job_may_share_a_folder(tmp_path: Path, write_sink: Write) -> None:
    sinks = [hg.sinks.parquet(tmp_path) for _ in range(2)]
    for sink in sinks:
        start(sink, SCHEMA)
    for value, sink in enumerate(sinks):
        sink.commit(write_sink(sink, [[batch(("a", value))]], SCHEMA))
    assert sorted(pq.read_table(tmp_path)["v"].to_pylist()) == [0, 1]


def test_a_hidden_file_that_is_gone_fails_the_commit(tmp_path: Path, write_sink: Write) -> None:
    sink = hg.sinks.parquet(tmp_path)
    start(sink, SCHEMA)
    pending = write_sink(sink, [[batch(("a", 1))]], SCHEMA)
    (tmp_path / files(tmp_path)[0]).unlink()
    with pytest.raises(hg.SinkError, match="is gone, with rows .* a path that all machines of the job share"):
        sink.commit(pending)


def test_small_batches_become_one_row_group_and_large_files_are_ended(
    tmp_path: Path, write_sink: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "_ROWS_HELD", 100)
    sink = hg.sinks.parquet(tmp_path, target_file_size=1500)
    start(sink, SCHEMA)
    batches = [batch(*((f"{i * 7 + j}", i * 7 + j) for j in range(7))) for i in range(50)]
    sink.commit(write_sink(sink, [batches], SCHEMA))
    groups = [pq.ParquetFile(tmp_path / name).metadata for name in visible(tmp_path)]
    rows = [[footer.row_group(i).num_rows for i in range(footer.num_row_groups)] for footer in groups]
    assert [row for file in rows for row in file] == [105, 105, 105, 35]
    assert len(rows) > 1
    assert pq.read_table(tmp_path)["v"].to_pylist() == list(range(350))


@pytest.mark.parametrize("make", [hg.sinks.csv, hg.sinks.json])
def test_large_files_of_text_are_ended(
    tmp_path: Path, write_sink: Write, read_source: Any, monkeypatch: pytest.MonkeyPatch, make: Callable[..., FileSink]
) -> None:
    monkeypatch.setattr(file_writer, "_ROWS_HELD", 100)
    sink = make(tmp_path, target_file_size=1500)
    start(sink, SCHEMA)
    batches = [batch(*((f"{i * 7 + j}", i * 7 + j) for j in range(7))) for i in range(50)]
    sink.commit(write_sink(sink, [batches], SCHEMA))
    sizes = [(tmp_path / name).stat().st_size for name in visible(tmp_path)]
    assert len(sizes) > 1
    assert all(1500 <= size < 4000 for size in sizes[:-1])
    source = hg.sources.csv if make is hg.sinks.csv else hg.sources.json_lines
    assert sorted(read_source(source(tmp_path, schema=SCHEMA))[0]["v"].to_pylist()) == list(range(350))


def test_rows_in_memory_and_open_files_are_bounded(
    tmp_path: Path, writer_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "_BYTES_HELD", 20_000)
    monkeypatch.setattr(hidden_files.RenamedFiles, "most_open", 3)
    sink = hg.sinks.parquet(tmp_path, partition_by="k")
    start(sink, SCHEMA)
    writer: Any = sink.writer(writer_context(SCHEMA))
    for i in range(100):
        writer.write(batch(*((f"{key}", i) for key in range(8))))
        held = sum(held.nbytes for held in writer._held.values())
        assert held == writer._bytes_held <= 20_000
        assert len(writer._open) <= 3
    sink.commit([writer.finish()])
    writer.close()
    assert ds.dataset(tmp_path, partitioning="hive").to_table().group_by("k").aggregate([("v", "sum")]).num_rows == 8
    assert ds.dataset(tmp_path).count_rows() == 800


def test_rows_that_wait_in_memory_keep_nothing_else_there() -> None:
    """Folders with few rows keep them for long. As slices, they would keep all rows of their batches."""
    rows = pa.record_batch({"k": ["rare"] + ["often"] * 999, "v": ["x" * 100] * 1000})
    parts = dict(by_folder(rows, ["k"]))
    assert {folder: part.num_rows for folder, part in parts.items()} == {"k=rare": 1, "k=often": 999}
    assert parts["k=rare"].get_total_buffer_size() < 1000
    assert parts["k=often"].get_total_buffer_size() < 150_000


def test_a_full_disk_names_the_file(tmp_path: Path, writer_context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer.Target, "hidden_name", lambda *_: "full")
    (tmp_path / "full").symlink_to("/dev/full")
    sink = hg.sinks.csv(tmp_path, mode="append")
    start(sink, SCHEMA)
    writer = sink.writer(writer_context(SCHEMA))
    writer.write(batch(("a", 1)))
    with pytest.raises(hg.SinkError, match=r"/full: cannot be written: .*No space left on device.*; check free space"):
        writer.finish()
    writer.close()


def test_a_path_that_is_a_file_or_below_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(hg.SinkError, match="/f: is a file; give the path of a folder"):
        start(hg.sinks.parquet(tmp_path / "f"), SCHEMA)
    with pytest.raises(hg.SinkError, match="/f/g: cannot be written: .*Not a directory"):
        start(hg.sinks.parquet(tmp_path / "f" / "g"), SCHEMA)


def test_an_error_of_a_library_becomes_one_line() -> None:
    with pytest.raises(hg.SinkError) as caught, file_writer.writing("/out/x"):
        raise OSError("Unable to load libjvm\nlooked here\nand there")
    assert caught.value.message == (
        "/out/x: cannot be written: Unable to load libjvm; check free space and permissions there"
    )


def test_impossible_file_sinks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        hg.SinkError, match="gs://b/out: the sink makes each file visible in one step, which it cannot do with gs"
    ):
        hg.sinks.parquet("gs://b/out")
    with pytest.raises(hg.ConfigError, match="mode='replace' is unknown; it must be one of 'error', 'append', 'over"):
        hg.sinks.csv(tmp_path, mode="replace")  # type: ignore[arg-type]
    with pytest.raises(hg.SinkError, match="the sink was not prepared"):
        hg.sinks.csv(tmp_path).finish()


@pytest.mark.parametrize(
    ("sink", "types", "message"),
    [
        (hg.sinks.csv, {"x": pa.list_(pa.int64())}, "column 'x' is list<.*>, which csv files cannot hold"),
        (
            hg.sinks.csv,
            {"x\ny": pa.int64()},
            r"column 'x\\ny' is int64, which csv .* \(a column's name has a line break\)",
        ),
        (
            hg.sinks.parquet,
            {"x": pa.binary(0)},
            r"column 'x' is fixed_size_binary\[0\], which parquet files cannot hold",
        ),
        (hg.sinks.parquet, {"x": pa.month_day_nano_interval()}, "column 'x' is month_.*, which parquet files cannot"),
    ],
)
def test_types_that_a_format_lacks_are_refused(tmp_path: Path, sink: Any, types: dict[str, Any], message: str) -> None:
    with pytest.raises(hg.PlanError, match=message):
        start(sink(tmp_path / "out"), pa.schema(types))
    assert not (tmp_path / "out").exists()


def test_a_struct_whose_fields_are_never_null_can_be_written(tmp_path: Path) -> None:
    start(hg.sinks.parquet(tmp_path / "out"), pa.schema({"x": pa.struct([pa.field("a", pa.int64(), nullable=False)])}))


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [
        ("z", "partition_by: there is no column 'z'; there are: k, v, x"),
        ("x", "partition_by: column 'x' is double; only int, string, bool and time columns can"),
        (["k", "k"], "no column twice"),
    ],
)
def test_impossible_partitions_are_refused(tmp_path: Path, partition_by: Any, message: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("x", pa.float64())])
    with pytest.raises(hg.PlanError, match=message):
        start(hg.sinks.parquet(tmp_path, partition_by=partition_by), schema)
    with pytest.raises(hg.PlanError, match="leave at least one column for the files"):
        start(hg.sinks.parquet(tmp_path, partition_by=["k", "v"]), SCHEMA)
