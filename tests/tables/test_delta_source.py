"""The source of Delta tables: snapshots, later versions, positions, and tables that it refuses."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import check_source
from tests.runtime import jobs
from tests.runtime.jobs import eventually

deltalake = pytest.importorskip("deltalake")


def append(path: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    deltalake.write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append", **options)


def collected(path: Path, **options: Any) -> list[dict[str, Any]]:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows: list[dict[str, Any]] = env.from_source(hg.sources.delta(path, bounded=True, **options)).collect().to_pylist()
    return rows


def numbers(*values: int) -> list[dict[str, Any]]:
    return [{"n": n, "s": f"row {n}"} for n in values]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table whose three versions have 12 rows in four files."""
    for start in (0, 4, 8):
        append(tmp_path / "t", numbers(*range(start, start + 4)))
    return tmp_path / "t"


def test_it_keeps_the_contract(table: Path, tmp_path: Path) -> None:
    append(tmp_path / "none", numbers(1))
    deltalake.DeltaTable(str(tmp_path / "none")).delete()
    check_source(
        lambda: hg.sources.delta(table, bounded=True, batch_rows=3), numbers(*range(12)),
        idle=lambda: hg.sources.delta(tmp_path / "none", interval="10 ms"),
        broken=lambda: hg.sources.delta(tmp_path / "missing"),
    )  # fmt: skip


def test_start_leaves_out_the_versions_before(table: Path) -> None:
    assert [row["n"] for row in collected(table, start=1)] == [8, 9, 10, 11]
    assert collected(table, start=2) == []
    with pytest.raises(hg.SourceError, match="there is no version 7, the newest is 2"):
        collected(table, start=7)


def test_a_place_after_the_newest_version_is_kept(table: Path) -> None:
    place, seen = None, []
    for rows in ([], numbers(12), numbers(13, 14)):
        if rows:
            append(table, rows)
        for _ in range(2):  # each time another program
            source: Any = hg.sources.delta(table, start=2)
            batch, place = source.fn("table", place)
            seen.append(batch.to_pylist())
            source.end_polls()
    assert seen == [[], [], numbers(12), [], numbers(13, 14), []]


def test_a_job_does_not_resume_with_another_table(table: Path, tmp_path: Path) -> None:
    append(tmp_path / "other", numbers(1))
    other, prepared = hg.sources.delta(tmp_path / "other"), hg.sources.delta(table).prepared()
    with pytest.raises(hg.SourceError, match=f"/other: the job of the checkpoint reads delta: {table},"):
        other.restore(prepared)
    hg.sources.delta(table, columns=["n"]).reading(["n"]).restore(prepared)


def test_a_job_resumes_with_a_table_that_moved_and_not_with_one_made_anew(table: Path, tmp_path: Path) -> None:
    prepared = hg.sources.delta(table).prepared()
    deltalake.DeltaTable(table).alter.add_columns([deltalake.Field("new", deltalake.schema.PrimitiveType("string"))])
    moved = table.rename(tmp_path / "moved")
    hg.sources.delta(moved).restore(prepared)
    append(table, numbers(20))
    with pytest.raises(hg.SourceError, match="the table was removed and made anew after the checkpoint; restore it"):
        hg.sources.delta(table).restore(prepared)


def test_later_versions_are_followed(table: Path) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    found = hg.sinks.collect()
    env.from_source(hg.sources.delta(table, interval="10 ms")).sink_to(found)
    job = env.execute_async()
    eventually(lambda: found.to_table().num_rows == 12)
    append(table, numbers(20, 21))
    deltalake.DeltaTable(str(table)).optimize.compact()  # removes and adds files, and changes no row
    append(table, numbers(22))
    eventually(lambda: found.to_table().num_rows == 15)
    job.cancel()
    assert sorted(found.to_table()["n"].to_pylist()) == [*range(12), 20, 21, 22]


@pytest.mark.parametrize("is_made_anew", [False, True], ids=["removed", "made anew"])
def test_a_table_that_is_removed_while_it_is_followed_fails_the_job(table: Path, is_made_anew: bool) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    found = hg.sinks.collect()
    env.from_source(hg.sources.delta(table, interval="10 ms")).sink_to(found)
    job = env.execute_async()
    eventually(lambda: found.to_table().num_rows == 12)
    table.rename(table.with_name("elsewhere"))
    if is_made_anew:
        append(table, numbers(1))
    assert "its version 2 has been read, and is gone: the table was removed or made anew" in str(jobs.error_of(job))


def test_partitions_and_added_columns_are_read(tmp_path: Path) -> None:
    day = datetime.date(2024, 5, 1)
    first: list[dict[str, Any]] = [{"city": "a/b %=c", "day": day, "n": 1}, {"city": None, "day": None, "n": 2}]
    append(tmp_path / "t", first, partition_by=["city", "day"])
    append(tmp_path / "t", [{"city": "Rome", "day": day, "n": 3, "x": 1.5}], schema_mode="merge")
    rows: list[dict[str, Any]] = [{**row, "x": None} for row in first] + [
        {"city": "Rome", "day": day, "n": 3, "x": 1.5}
    ]
    assert sorted(collected(tmp_path / "t"), key=lambda row: row["n"]) == rows
    assert collected(tmp_path / "t", start=0) == rows[2:]  # from the log, not from the snapshot


@pytest.mark.parametrize("writes", ["deltalake", "headgate"])
def test_partitions_of_other_types_are_read(tmp_path: Path, writes: str) -> None:
    """The log has them as texts; a time may or may not say its zone."""
    at = datetime.datetime(2024, 5, 1, 10, 0, 0, 250, tzinfo=datetime.UTC)
    row = {"n": 1, "at": at, "local": at.replace(tzinfo=None), "day": at.date(), "late": True}
    times = {"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32()}
    kinds = {"n": pa.int64(), **times, "late": pa.bool_()}
    rows = [row, {**dict.fromkeys(row), "n": 2}, {**row, "n": 3, "at": at.replace(microsecond=0)}]
    table = pa.Table.from_pylist(rows, pa.schema(kinds))
    parts = [name for name in row if name != "n"]
    for part in (table.slice(0, 2), table.slice(2)):
        if writes == "deltalake":
            deltalake.write_deltalake(str(tmp_path / "t"), part, mode="append", partition_by=parts)
        else:
            env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
            sink = hg.sinks.delta(tmp_path / "t", partition_by=parts)
            env.from_source(hg.sources.iterable(part.to_batches())).sink_to(sink)
            env.execute()
    read = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    followed = collected(tmp_path / "t", start=0)
    if writes == "deltalake":  # version 0 has rows; that of our sink only makes the table
        followed += rows[:2]
    for found in (read, collected(tmp_path / "t"), followed):
        assert sorted(found, key=lambda row: row["n"]) == rows


def test_new_columns_are_not_read_or_refused(table: Path) -> None:
    """Those that the table has when the source is made are read; those that come later are not, or fail the job."""
    ignoring, refusing, starting = (
        hg.sources.delta(table, bounded=True, **options)
        for options in ({}, {"new_columns": "refuse"}, {"new_columns": "refuse", "start": 2})
    )
    schema = pa.schema({"n": pa.int64(), "x": pa.int64(), "y": pa.string()})
    wide = pa.Table.from_pylist([{"n": 12, "x": 1, "y": "new"}], schema)
    deltalake.write_deltalake(str(table), wide, mode="append", schema_mode="merge")

    def rows(source: hg.Source) -> list[dict[str, Any]]:
        env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        return sorted(env.from_source(source).collect().to_pylist(), key=lambda row: row["n"])

    assert rows(ignoring) == [*numbers(*range(12)), {"n": 12, "s": None}]
    message = rf"delta\[0\]: {table}: version 3 has the new columns 'x', 'y', .*new_columns=\"ignore\""
    for source in (refusing, starting):
        with pytest.raises(hg.SourceError, match=message):
            rows(source)
    again = rows(hg.sources.delta(table, bounded=True, new_columns="refuse", start=1))
    assert [row["x"] for row in again] == [None] * 4 + [1], "a new source reads them, also with their version"
    with pytest.raises(hg.ConfigError, match="new_columns='add' must be one of 'ignore', 'refuse'"):
        hg.sources.delta(table, new_columns="add")  # type: ignore[arg-type]


def test_a_job_resumes_with_its_columns_when_the_table_has_more(table: Path, tmp_path: Path) -> None:
    def start(new_columns: Any, columns: list[str] | None = None, **options: Any) -> hg.JobHandle:
        env = jobs.environment(
            parallelism=1, checkpoint_dir=tmp_path / "c", checkpoint_interval="20 ms", restart=hg.restart.none()
        )
        source = hg.sources.delta(table, columns=columns, new_columns=new_columns, interval="10 ms")
        env.from_source(source).uid("in").sink_to(hg.sinks.json(tmp_path / "out")).uid("out")
        return env.execute_async("job", **options)

    def rows() -> list[dict[str, Any]]:
        files = [path for path in (tmp_path / "out").rglob("*.jsonl") if path.name[0] not in "._"]
        found = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return sorted(found, key=lambda row: row["n"])

    job = start("refuse")
    eventually(lambda: len(rows()) == 12)
    wide = pa.table({"n": [12], "s": ["row 12"], "x": [1]})
    deltalake.write_deltalake(str(table), wide, mode="append", schema_mode="merge")
    assert "version 3 has the new column 'x'" in str(jobs.error_of(job))
    with pytest.raises(hg.CheckpointError, match=r"with rows of \(n: int64, s: string\), which now are"):
        start("ignore", resume="latest")
    job = start("ignore", ["n", "s"], resume="latest")
    eventually(lambda: len(rows()) == 13)
    job.cancel()
    assert rows() == numbers(*range(13))


def test_columns_are_chosen(table: Path) -> None:
    assert sorted(row["n"] for row in collected(table, columns=["n"])) == [*range(12)]
    assert list(collected(table, columns=["s", "n"])[0]) == ["s", "n"]
    assert [*collected(table, columns=["s"])[0]] == ["s"]
    with pytest.raises(hg.PlanError, match="columns= has 'x', but the table has: n, s"):
        hg.sources.delta(table, columns=["x"])
    with pytest.raises(hg.ConfigError, match="none twice"):
        hg.sources.delta(table, columns=["n", "n"])
    source = hg.sources.delta(table, bounded=True, columns=["n"], new_columns="refuse")
    append(table, numbers(12))
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    assert env.from_source(source).collect().num_rows == 13, "a column that is left out is not new"


@pytest.mark.parametrize("name", ["n", "city", "late"])
def test_a_job_reads_only_the_columns_that_it_needs(tmp_path: Path, name: str) -> None:
    append(tmp_path / "t", [{"n": 1, "city": "Rome", "s": "a"}], partition_by=["city"])
    append(tmp_path / "t", [{"n": 2, "city": "Oslo", "s": "b", "late": 7}], schema_mode="merge")
    source = hg.sources.delta(tmp_path / "t", bounded=True)
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows = env.from_source(source)
    expected = {"n": {1, 2}, "city": {"Rome", "Oslo"}, "late": {None, 7}}
    assert set(rows.select(name).collect()[name].to_pylist()) == expected[name]
    assert set(rows.collect()["s"].to_pylist()) == {"a", "b"}  # the source itself still reads all of them


def test_a_version_that_changes_rows_is_refused(table: Path) -> None:
    deltalake.DeltaTable(str(table)).delete("n = 5")
    assert len(collected(table)) == 11
    with pytest.raises(hg.SourceError, match="version 3 removes or changes rows; .* with start=3"):
        collected(table, start=2)


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    path, schema = tmp_path / "t", pa.schema({"n": pa.int64(), "s": pa.string()})
    deltalake.DeltaTable.create(str(path), schema, configuration={"delta.enableDeletionVectors": "true"})
    append(path, numbers(1, 2))
    assert len(collected(path)) == 2
    log = path / "_delta_log"
    [add] = [action["add"] for action in map(json.loads, (log / f"{1:020}.json").open()) if "add" in action]
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    action = {"add": {**add, "path": "other.parquet", "deletionVector": {**vector, "cardinality": 1}}}
    (log / f"{2:020}.json").write_text(json.dumps(action))
    with pytest.raises(hg.SourceError, match="version 2 has deletion vectors, which the source cannot read"):
        collected(path, start=1)
    with pytest.raises(hg.SourceError, match=r"delta\[0\]: .*"):
        collected(path)


def test_mapped_columns_are_refused(table: Path) -> None:
    metadata = next(a for a in map(json.loads, (table / "_delta_log" / f"{0:020}.json").open()) if "metaData" in a)
    metadata["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    (table / "_delta_log" / f"{3:020}.json").write_text(f"{json.dumps(protocol)}\n{json.dumps(metadata)}")
    with pytest.raises(hg.SourceError, match="delta: "):
        hg.sources.delta(table)


def test_a_log_that_was_cleaned_is_refused(table: Path) -> None:
    (table / "_delta_log" / f"{1:020}.json").rename(table / "old")
    with pytest.raises(hg.SourceError, match="delta: "):
        collected(table, start=0)


def test_impossible_arguments_and_positions_are_refused(table: Path) -> None:
    with pytest.raises(hg.ConfigError, match="start=-1 must be a version"):
        hg.sources.delta(table, start=-1)
    with pytest.raises(hg.ConfigError, match="batch_rows= must be at least 1"):
        hg.sources.delta(table, batch_rows=0)
    source = hg.sources.delta(table)
    for place in (None, [3, 1, 0, 7]):
        source.check_position({"table": ["open", place]})
    wrong: list[Any] = [[3, 2, 0, 0], [3, 1, -1, 0], [1, 1], "x", [1.5, 0, 0, 0]]
    for place in wrong:
        with pytest.raises(ValueError, match="position"):
            source.check_position({"table": ["open", place]})
