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
    with pytest.raises(hg.SourceError, match="delta: .*"):
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
