"""The source of Iceberg tables: snapshots, later snapshots, positions, and tables that it refuses."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.connectors.tables.iceberg_files import data_file
from headgate.testing import check_source
from tests.runtime.jobs import eventually

pytest.importorskip("pyiceberg.catalog.sql")
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType


def numbers(*values: int) -> list[dict[str, Any]]:
    return [{"n": n, "s": f"row {n}"} for n in values]


class Lake:
    """A catalog in a SQLite file, with tables in a folder."""

    def __init__(self, folder: Path) -> None:
        self.options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self.catalog = load_catalog("test", **self.options)
        self.catalog.create_namespace("lake")

    def table(self, name: str = "t") -> Any:
        return self.catalog.load_table(f"lake.{name}")

    def append(self, rows: list[dict[str, Any]], name: str = "t") -> int:
        """Append rows, and return the ID of the snapshot."""
        given = pa.Table.from_pylist(rows)
        table: Any = self.catalog.create_table_if_not_exists(f"lake.{name}", given.schema)
        table.append(given)
        return int(table.current_snapshot().snapshot_id)

    def source(self, name: str = "t", **options: Any) -> Any:
        return hg.sources.iceberg(f"lake.{name}", "test", options=self.options, **options)

    def collected(self, name: str = "t", **options: Any) -> list[dict[str, Any]]:
        env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        rows: list[dict[str, Any]] = env.from_source(self.source(name, bounded=True, **options)).collect().to_pylist()
        return sorted(rows, key=lambda row: row["n"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A catalog with a table whose three snapshots have 12 rows."""
    lake = Lake(tmp_path)
    lake.snapshots = [lake.append(numbers(*range(start, start + 4))) for start in (0, 4, 8)]  # type: ignore[attr-defined]
    return lake


def test_it_keeps_the_contract(lake: Lake) -> None:
    lake.catalog.create_table("lake.none", pa.schema({"n": pa.int64(), "s": pa.string()}))
    check_source(
        lambda: lake.source(bounded=True, batch_rows=3), numbers(*range(12)),
        idle=lambda: lake.source("none", interval="10 ms"), broken=lambda: lake.source("missing"),
    )  # fmt: skip


@pytest.mark.parametrize("rows", [[], numbers(1)], ids=["empty", "filled"])
def test_a_table_that_is_made_anew_while_it_is_followed_is_refused(lake: Lake, rows: list[dict[str, Any]]) -> None:
    source, place, read = lake.source(), None, -1
    while read:
        batch, place = source.fn("table", place)
        read = batch.num_rows
    lake.catalog.drop_table("lake.t")
    lake.catalog.create_table("lake.t", pa.schema({"n": pa.int64(), "s": pa.string()}))
    if rows:
        lake.append(rows)
    with pytest.raises(
        hg.SourceError, match=r"is not in the table's history: .* made anew; start again without resume"
    ):
        source.fn("table", place)
    source.end_polls()


def test_start_leaves_out_the_snapshots_before(lake: Any) -> None:
    assert [row["n"] for row in lake.collected(start=lake.snapshots[1])] == [8, 9, 10, 11]
    assert [row["n"] for row in lake.collected(start=0)] == [*range(12)]
    assert lake.collected(start=lake.snapshots[2]) == []
    with pytest.raises(hg.SourceError, match="there is no snapshot 7"):
        lake.collected(start=7)


def test_another_program_continues_after_the_newest_snapshot(lake: Any) -> None:
    place, seen = None, []
    for rows in ([], numbers(12), numbers(13, 14)):
        if rows:
            lake.append(rows)
        for _ in range(2):
            source = pickle.loads(pickle.dumps(lake.source(start=lake.snapshots[2])))
            batch, place = source.fn("table", place)
            source.check_place(place)
            seen.append(batch.to_pylist())
            source.end_polls()
    assert seen == [[], [], numbers(12), [], numbers(13, 14), []]


def test_a_job_does_not_resume_with_another_table(lake: Lake) -> None:
    lake.append(numbers(1), "other")
    with pytest.raises(hg.SourceError, match="test.lake.other: the job of the checkpoint reads iceberg: test.lake.t,"):
        lake.source("other").restore(lake.source().prepared())


def test_a_job_resumes_with_a_renamed_table_and_not_with_one_made_anew(lake: Lake) -> None:
    prepared = lake.source().prepared()
    lake.catalog.rename_table("lake.t", "lake.renamed")
    lake.source("renamed").restore(prepared)
    lake.append(numbers(20))
    with pytest.raises(hg.SourceError, match="the table was removed and made anew after the checkpoint; restore it"):
        lake.source().restore(prepared)


def test_later_snapshots_are_followed(lake: Lake) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    found = hg.sinks.collect()
    env.from_source(lake.source(interval="10 ms")).sink_to(found)
    job = env.execute_async()
    eventually(lambda: found.to_table().num_rows == 12)
    lake.append(numbers(20, 21))
    lake.append(numbers(22))
    eventually(lambda: found.to_table().num_rows == 15)
    job.cancel()
    assert sorted(found.to_table()["n"].to_pylist()) == [*range(12), 20, 21, 22]


def test_new_columns_are_not_read_or_refused(lake: Any) -> None:
    def rows(source: hg.Source) -> list[dict[str, Any]]:
        env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        return sorted(env.from_source(source).collect().to_pylist(), key=lambda row: row["n"])

    with lake.table().update_schema() as update:
        update.add_column("dropped", LongType())
    lake.append([{"n": 12, "s": "row 12", "dropped": 1}])
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("dropped")
    ignoring, refusing, starting, whole = (
        lake.source(bounded=True, **options)
        for options in ({}, *({"new_columns": "refuse", **more} for more in ({}, {"start": lake.snapshots[1]},
                                                                             {"start": 0})))
    )  # fmt: skip
    assert rows(whole) == numbers(*range(13)), "a column that was dropped before is not new"
    with lake.table().update_schema() as update:
        update.add_column("x", LongType())
        update.add_column("y", StringType())
    assert rows(refusing) == numbers(*range(13)), "no row has the new columns yet"
    new = lake.append([{"n": 13, "s": "row 13", "x": 1, "y": "new"}])
    assert rows(ignoring) == numbers(*range(14))
    message = rf"iceberg\[0\]: test.lake.t: snapshot {new} has the new columns 'x', 'y', .*new_columns=\"ignore\""
    for source in (refusing, starting):
        with pytest.raises(hg.SourceError, match=message):
            rows(source)
    assert rows(lake.source(bounded=True, new_columns="refuse"))[-1] == {"n": 13, "s": "row 13", "x": 1, "y": "new"}
    with pytest.raises(hg.ConfigError, match="new_columns='add' must be one of 'ignore', 'refuse'"):
        lake.source(new_columns="add")


def test_columns_are_chosen(lake: Any) -> None:
    source = lake.source(bounded=True, columns=["s", "n"], new_columns="refuse")
    assert source.schema.names == ["s", "n"]
    assert sorted(lake.collected(columns=["n"]), key=lambda row: row["n"]) == [{"n": n} for n in range(12)]
    with pytest.raises(hg.PlanError, match="columns= has 'x', but the table has: n, s"):
        lake.source(columns=["x"])
    with pytest.raises(hg.ConfigError, match="must name one or more columns"):
        lake.source(columns=[])


def test_columns_that_were_added_or_renamed_are_read(lake: Any) -> None:
    with lake.table().update_schema() as update:
        update.add_column("x", LongType())
        update.rename_column("s", "text")
    lake.table().append(pa.table({"n": [20], "text": ["new"], "x": [7]}))
    rows = lake.collected()
    assert rows[0] == {"n": 0, "text": "row 0", "x": None}
    assert rows[-1] == {"n": 20, "text": "new", "x": 7}
    source = lake.source(bounded=True)
    with lake.table().update_schema() as update:
        update.rename_column("n", "number")
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    assert sorted(env.from_source(source).select("n").collect()["n"].to_pylist()) == [*range(12), 20]


def test_partitions_are_read(lake: Lake) -> None:
    schema = Schema(
        NestedField(1, "n", LongType(), required=False), NestedField(2, "city", StringType(), required=False)
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "city"))
    table = lake.catalog.create_table("lake.cities", schema, partition_spec=spec)
    table.append(pa.table({"n": [1, 2, 3], "city": ["Rome", "Oslo", None]}))
    expected = [{"n": 1, "city": "Rome"}, {"n": 2, "city": "Oslo"}, {"n": 3, "city": None}]
    assert lake.collected("cities") == expected
    assert lake.collected("cities", start=0) == expected


def add_file(table: Any, path: str, rows: pa.Table, *, has_numbers: bool = True) -> None:
    """Write a file and add it. Its folder has the values of its partition."""
    columns = table.schema().as_arrow()
    numbered = [columns.field(name) if has_numbers else rows.schema.field(name) for name in rows.schema.names]
    file = Path(table.location().removeprefix("file://"), "data", path)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(pa.schema(numbered)), file, store_schema=False)
    with table.transaction() as transaction:
        if not has_numbers:
            mapping = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({"schema.name-mapping.default": mapping})
        with transaction.update_snapshot().fast_append() as append:
            append.append_data_file(data_file(table, transaction.table_metadata, path, f"file://{file}"))


def test_columns_that_only_the_partition_has_are_read(lake: Lake) -> None:
    """Spark's add_files and migrate make such tables from folders of Hive."""
    types = {"n": LongType(), "city": StringType(), "day": DateType(), "at": TimestamptzType()}
    fields = [NestedField(number, name, type_) for number, (name, type_) in enumerate(types.items(), 1)]
    identity = [PartitionField(field.field_id, 1000, IdentityTransform(), field.name) for field in fields[1:]]
    table = lake.catalog.create_table("lake.hive", Schema(*fields), partition_spec=PartitionSpec(*identity))
    at = datetime.datetime(2024, 5, 1, 10, 30, tzinfo=datetime.UTC)
    folder = f"city=Rome/day=2024-05-01/at={at:%Y-%m-%d %H%%3A%M%%3A%S}Z"
    add_file(table, f"{folder}/a.parquet", pa.table({"n": [1, 2]}))
    add_file(lake.table("hive"), "b.parquet", pa.table({"n": [3]}))
    known, unknown = {"city": "Rome", "day": at.date(), "at": at}, {"city": None, "day": None, "at": None}
    expected = [{"n": 1, **known}, {"n": 2, **known}, {"n": 3, **unknown}]
    assert lake.collected("hive") == expected
    assert lake.collected("hive", start=0) == expected
    with lake.table("hive").update_spec() as update:
        update.remove_field("city")
    assert lake.collected("hive") == expected, "each file has a specification of its own"
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    cities = env.from_source(lake.source("hive", bounded=True, columns=["city"])).collect()
    assert sorted(cities["city"].to_pylist(), key=str) == [None, "Rome", "Rome"]


def test_fields_within_columns_are_found_by_their_numbers(lake: Lake) -> None:
    stop = pa.struct({"code": pa.string(), "zone": pa.int64(), "old": pa.int64()})
    schema = pa.schema({"n": pa.int64(), "s": stop, "l": pa.list_(stop), "m": pa.map_(pa.string(), stop)})
    value = {"code": "a", "zone": 1, "old": 7}
    rows = [{"n": n, "s": value, "l": [value, None], "m": [("k", value)]} for n in range(3)]
    rows.append({"n": 3, "s": None, "l": None, "m": None})
    add_file(lake.catalog.create_table("lake.nested", schema), "a.parquet", pa.Table.from_pylist(rows, schema))
    with lake.table("nested").update_schema(allow_incompatible_changes=True) as update:
        for path in (("s",), ("l", "element"), ("m", "value")):
            update.delete_column((*path, "old"))
            update.rename_column((*path, "code"), "name")
            update.rename_column((*path, "zone"), "area")
    with lake.table("nested").update_schema() as update:
        for path in (("s",), ("l", "element"), ("m", "value")):
            update.add_column((*path, "old"), LongType())  # another one
            update.add_column((*path, "code"), StringType())
    value = {"name": "a", "area": 1, "old": None, "code": None}
    expected = [{"n": n, "s": value, "l": [value, None], "m": [("k", value)]} for n in range(3)]
    expected.append({"n": 3, "s": None, "l": None, "m": None})
    assert lake.collected("nested") == expected
    source, place = pickle.loads(pickle.dumps(lake.source("nested", batch_rows=1))), None
    for number in range(4):
        batch, place = source.fn("table", place)
        assert batch.to_pylist() == [expected[number]]
        source.end_polls()


def test_columns_of_files_without_numbers_are_found_by_the_name_mapping(lake: Lake) -> None:
    schema = pa.schema({"n": pa.int64(), "s": pa.struct({"a": pa.int64()})})
    table = lake.catalog.create_table("lake.plain", schema)
    add_file(table, "a.parquet", pa.table({"n": [1], "s": [{"a": 2}]}), has_numbers=False)
    with lake.table("plain").update_schema() as update:
        update.rename_column(("s", "a"), "b")
        update.rename_column("s", "t")
    assert lake.collected("plain") == [{"n": 1, "t": {"b": 2}}]


def test_a_snapshot_that_removes_rows_is_refused(lake: Any) -> None:
    lake.table().delete("n = 5")
    assert len(lake.collected()) == 11
    newest = lake.table().current_snapshot().snapshot_id
    with pytest.raises(hg.SourceError, match=f"snapshot {newest} removes or changes rows; .* with start={newest}"):
        lake.collected(start=lake.snapshots[2])
    lake.append(numbers(30))
    assert lake.collected(start=newest) == numbers(30)


def test_a_snapshot_outside_of_the_history_is_refused(lake: Any) -> None:
    place = [lake.snapshots[2], 2, 0, 0]
    lake.table().manage_snapshots().rollback_to_snapshot(lake.snapshots[0]).commit()
    lake.append(numbers(50))
    with pytest.raises(hg.SourceError, match="is not in the table's history"):
        lake.source(bounded=True).fn("table", place)


def test_impossible_arguments_and_positions_are_refused(lake: Lake) -> None:
    wrong: list[dict[str, Any]] = [
        {"start": -1}, {"start": True}, {"batch_rows": 0}, {"bounded": "yes"}, {"options": {"a": 1}}
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(hg.ConfigError):
            hg.sources.iceberg("lake.t", "test", **{"options": lake.options, **options})
    for place in ([1, 3, 0, 0], [1, 0, -1, 0], "x", [1, 2]):
        with pytest.raises(ValueError, match="is not a snapshot"):
            lake.source().check_place(place)
