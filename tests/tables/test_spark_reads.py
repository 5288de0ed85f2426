"""Spark reads the Delta and Iceberg tables that our sinks wrote, with the libraries of the formats' own projects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing.sink_program import SinkProgram, StoredJob
from tests.tables.spark_tables import SparkTables
from tests.tables.test_iceberg_sink import Lake

pytest.importorskip("pyiceberg.catalog.sql")
from pyiceberg.transforms import DayTransform

deltalake = pytest.importorskip("deltalake")
pytestmark = [pytest.mark.timeout(1800), pytest.mark.xdist_group("spark 4.0")]

LOCAL = hg.LocalDeployment(processes=False)
SCHEMA = pa.schema(
    {
        "n": pa.int64(), "city": pa.string(), "day": pa.date32(), "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"), "price": pa.decimal128(10, 2), "km": pa.float64(), "late": pa.bool_(),
        "code": pa.binary(), "stop": pa.struct({"name": pa.string(), "tags": pa.list_(pa.string())}),
        "seats": pa.map_(pa.string(), pa.int64()),
    }
)  # fmt: skip
#: Conditions in Spark's SQL, which skip files and partitions, and the same in Python.
CONDITIONS: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "city = 'Rome'": lambda row: row["city"] == "Rome",
    "city is null": lambda row: row["city"] is None,
    "city = 'a/b %=c'": lambda row: row["city"] == "a/b %=c",
    "n between 7 and 21": lambda row: 7 <= row["n"] <= 21,
    "day = date'2024-05-03'": lambda row: row["day"] == date(2024, 5, 3),
    "at >= timestamp'2024-05-01 03:00:00Z'": lambda row: (
        row["at"] is not None and row["at"] >= datetime(2024, 5, 1, 3, tzinfo=UTC)
    ),
    "price > 3.05": lambda row: row["price"] is not None and row["price"] > Decimal("3.05"),
    "stop.name = 'stop 4'": lambda row: row["stop"] is not None and row["stop"]["name"] == "stop 4",
    "seats is null": lambda row: row["seats"] is None,
}
CITIES = ("Rome", "Oslo", None, "a/b %=c")


def made(first: int, count: int) -> pa.RecordBatch:
    """Return rows with the numbers from `first` on. Each fifth row has nulls only, apart from its number and city."""
    return pa.RecordBatch.from_pylist([_row(n) for n in range(first, first + count)], SCHEMA)


def _row(n: int) -> dict[str, Any]:
    row = {"n": n, "city": CITIES[n % 4]}
    if n % 5 == 0:
        return row
    at = datetime(2024, 5, 1, tzinfo=UTC) + timedelta(minutes=10 * n, microseconds=n)
    return {
        **row, "day": date(2024, 5, 1 + n % 7), "at": at, "local": at.replace(tzinfo=None),
        "price": Decimal(n) / 4 + Decimal("0.05"), "km": n / 3, "late": n % 2 == 1, "code": bytes([n % 256]),
        "stop": {"name": f"stop {n % 9}", "tags": ["x", None, str(n)][: n % 4]}, "seats": [("a", n), ("b", None)],
    }  # fmt: skip


class Tables(ABC):
    """Tables of one format in a folder."""

    @abstractmethod
    def sink(self, name: str, **options: Any) -> hg.Sink: ...

    @abstractmethod
    def in_spark(self, name: str) -> str:
        """Return what a table is called in Spark's SQL."""

    @abstractmethod
    def read(self, name: str) -> list[dict[str, Any]]:
        """Return the rows that the format's Python library reads."""

    @abstractmethod
    def compact(self, name: str) -> str:
        """Join the table's files by the Python library if it can. Returns a statement of Spark that joins them."""

    def write(self, name: str, given: Any, **options: Any) -> None:
        env = hg.StreamEnvironment(deployment=LOCAL, parallelism=2)
        env.from_source(hg.sources.iterable(given)).rebalance().sink_to(self.sink(name, **options))
        env.execute()


@cache
def lake_in(folder: Path) -> Lake:
    return Lake(folder)


class DeltaTables(Tables):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sink(self, name: str, **options: Any) -> hg.Sink:
        return hg.sinks.delta(self._folder / name, partition_by="city", **options)

    def in_spark(self, name: str) -> str:
        return f"delta.`{self._folder / name}`"

    def read(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = deltalake.DeltaTable(str(self._folder / name)).to_pyarrow_table().to_pylist()
        return rows

    def compact(self, name: str) -> str:
        joined = deltalake.DeltaTable(str(self._folder / name)).optimize.compact()
        assert joined["numFilesRemoved"] > joined["numFilesAdded"] > 0
        return f"optimize {self.in_spark(name)}"


class IcebergTables(Tables):
    def __init__(self, folder: Path) -> None:
        self._lake = lake_in(folder)

    def sink(self, name: str, **options: Any) -> hg.Sink:
        return self._lake.sink(name, **options)

    def in_spark(self, name: str) -> str:
        return f"test.lake.{name}"

    def read(self, name: str) -> list[dict[str, Any]]:
        return self._lake.read(name)

    def compact(self, name: str) -> str:
        return f"call test.system.rewrite_data_files(table => 'lake.{name}', options => map('min-input-files', '2'))"


class PartitionedIcebergTables(IcebergTables):
    """By a text with special characters, and by the day of a time. Both may be null."""

    def sink(self, name: str, **options: Any) -> hg.Sink:
        catalog, name = self._lake.catalog, f"parted_{name}"
        if not catalog.table_exists(f"lake.{name}"):
            with catalog.create_table(f"lake.{name}", SCHEMA).update_spec() as update:
                update.add_identity("city")
                update.add_field("at", DayTransform())
        return super().sink(name, **options)

    def in_spark(self, name: str) -> str:
        return super().in_spark(f"parted_{name}")

    def read(self, name: str) -> list[dict[str, Any]]:
        return super().read(f"parted_{name}")

    def compact(self, name: str) -> str:
        return super().compact(f"parted_{name}")


KINDS: dict[str, type[Any]] = {
    "delta": DeltaTables, "iceberg": IcebergTables, "iceberg partitions": PartitionedIcebergTables,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[SparkTables]:
    started = SparkTables(folder)
    yield started
    started.close()


@pytest.fixture(scope="module", params=KINDS)
def tables(folder: Path, request: pytest.FixtureRequest) -> Tables:
    found: Tables = KINDS[request.param](folder)
    return found


def assert_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert sorted(found, key=lambda row: row["n"]) == sorted(expected, key=lambda row: row["n"])


@pytest.mark.turns(3)
def test_spark_reads_what_was_written(spark: SparkTables, tables: Tables) -> None:
    """Rows with every type that both formats have, in the order of another schema, and a column that comes later."""
    name, first, second = "trips", made(0, 40), made(40, 40)
    seats = pa.array([None if n % 3 else n for n in range(40)], pa.int32())
    more = second.append_column("free", seats).select(["free", *reversed(SCHEMA.names)])
    tables.write(name, [first])
    tables.write(name, [more], new_columns="add")
    expected = [{**row, "free": None} for row in first.to_pylist()] + more.to_pylist()
    found = spark.rows(f"select * from {tables.in_spark(name)}")
    assert found.schema.field("price").type == pa.decimal128(10, 2)
    assert found.schema.field("at").type == pa.timestamp("us", "UTC")
    assert found.schema.field("local").type == pa.timestamp("us")
    assert_same(found.to_pylist(), expected)
    for condition, is_met in CONDITIONS.items():
        found = spark.rows(f"select * from {tables.in_spark(name)} where {condition}")
        wanted = [row for row in expected if is_met(row)]
        assert wanted, condition
        assert_same(found.to_pylist(), wanted)
    assert_same(spark.rows(f"select * from {tables.in_spark(name)} where free is not null").to_pylist(),
                [row for row in expected if row["free"] is not None])  # fmt: skip


@pytest.mark.soak
def test_spark_knows_the_partitions(spark: SparkTables, folder: Path) -> None:
    """Their values are those that Spark gives its own rows."""
    tables, name = PartitionedIcebergTables(folder), "spark_too"
    rows = made(0, 60)
    tables.write(name, [rows])
    table = tables.in_spark(name)
    partitions = f"select partition, record_count from {table}.partitions order by string(partition)"
    ours = spark.rows(partitions).to_pylist()
    columns = ", ".join(SCHEMA.names)
    spark.run(f"insert into {table} ({columns}) select {columns} from {table}")
    both = spark.rows(partitions).to_pylist()
    assert [(row["partition"], row["record_count"]) for row in both] == [
        (row["partition"], 2 * row["record_count"]) for row in ours
    ]


@pytest.mark.soak
def test_partitions_by_times(spark: SparkTables, folder: Path) -> None:
    """Spark reads those that our sink wrote, and our source follows those that Spark writes."""
    path, rows = folder / "parted_by_times", made(0, 24)
    env = hg.StreamEnvironment(deployment=LOCAL)
    sink = hg.sinks.delta(path, partition_by=["at", "local", "day", "late"])
    env.from_source(hg.sources.iterable([rows])).sink_to(sink)
    env.execute()
    table, columns = f"delta.`{path}`", ", ".join(SCHEMA.names)
    assert_same(spark.rows(f"select * from {table}").to_pylist(), rows.to_pylist())
    for condition in ("at >= timestamp'2024-05-01 03:00:00Z'", "day = date'2024-05-03'", "late"):
        found = spark.rows(f"select n from {table} where {condition}").num_rows
        assert 0 < found < 24, condition
    version = deltalake.DeltaTable(str(path)).version()
    spark.run(f"insert into {table} ({columns}) select {columns} from {table} where n >= 12")
    followed = hg.StreamEnvironment(deployment=LOCAL).from_source(
        hg.sources.delta(path, bounded=True, start=version)
    )  # fmt: skip
    assert_same(followed.collect().to_pylist(), rows.slice(12).to_pylist())


@pytest.mark.soak
def test_spark_reads_a_table_whose_files_were_joined(spark: SparkTables, tables: Tables) -> None:
    """By the Python library and by Spark; the sink and Spark write between. All read the same."""
    name, rows = "joined", made(0, 150)
    for start in range(0, 60, 15):
        tables.write(name, [rows.slice(start, 15)])
    statement = tables.compact(name)
    assert_same(spark.rows(f"select * from {tables.in_spark(name)}").to_pylist(), rows.slice(0, 60).to_pylist())
    for start in range(60, 120, 15):
        tables.write(name, [rows.slice(start, 15)])
    spark.run(statement)
    table, columns = tables.in_spark(name), ", ".join(SCHEMA.names)
    spark.run(f"insert into {table} ({columns}) select {columns} from {table} where n = 119")
    tables.write(name, [rows.slice(120)])
    expected = [*rows.to_pylist(), rows.to_pylist()[119]]
    assert_same(spark.rows(f"select * from {tables.in_spark(name)}").to_pylist(), expected)
    assert_same(tables.read(name), expected)


@pytest.mark.soak
def test_spark_reads_each_row_once_after_programs_were_replaced(
    spark: SparkTables, tables: Tables, tmp_path: Path
) -> None:
    """One program is paused before its commit. Another one fences it off, commits for it and finishes the job."""
    name, stored = "replaced", StoredJob()
    rows = pa.Table.from_batches([made(0, 90)])

    def program(subtasks: int) -> SinkProgram:
        started = SinkProgram(tables.sink(name), stored, rows, home=str(tmp_path), subtasks=subtasks)
        started.start()
        return started

    paused = program(2)
    for step in (paused.write, paused.flush, paused.store, paused.commit, paused.write, paused.flush, paused.store):
        step()
    seen = spark.rows(f"select n from {tables.in_spark(name)}")
    assert sorted(seen["n"].to_pylist()) == list(range(0, 90, 3)), "the first checkpoint"
    pending, checkpoint = stored.pending, stored.checkpoint
    program(3).go_on()
    for late in (paused.sink.commit, paused.sink.rollback, paused.sink.abort):
        with suppress(hg.HeadgateError):
            late(pending, checkpoint)
    paused.close()
    assert_same(spark.rows(f"select * from {tables.in_spark(name)}").to_pylist(), rows.to_pylist())
