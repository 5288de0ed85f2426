"""The sink into Iceberg tables, read back by pyiceberg."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.testing import check_sink
from headgate.testing.sink_program import SinkProgram, StoredJob
from tests.runtime import jobs
from tests.runtime.faults import behind_gate, open_gate

pytest.importorskip("pyiceberg.catalog.sql")
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

LOCAL = hg.LocalDeployment(processes=False)


class Lake:
    """A catalog in a SQLite file, with tables in a folder."""

    def __init__(self, folder: Path) -> None:
        self.options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}
        self.catalog: Catalog = load_catalog("test", **self.options)
        self.catalog.create_namespace("lake")

    def sink(self, table: str, **options: Any) -> hg.Sink:
        return hg.sinks.iceberg(f"lake.{table}", "test", options=self.options, **options)

    def read(self, table: str) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = self.catalog.load_table(f"lake.{table}").scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return rows

    def write(self, table: str, given: Any, **options: Any) -> None:
        env = hg.StreamEnvironment(deployment=LOCAL)
        env.from_source(hg.sources.iterable(given)).sink_to(self.sink(table, **options))
        env.execute()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def numbers(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


@pytest.mark.parametrize("lines", [3, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_it_keeps_the_contract(lake: Lake, lines: int) -> None:
    """With Delta, the test crashes at more lines."""
    check_sink(
        lake.sink, lake.read, broken=lambda: hg.sinks.iceberg("nowhere.t", "test", options=lake.options), lines=lines
    )


def test_a_table_is_created_and_appended_to(lake: Lake) -> None:
    time = datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC)
    row = {"n": 7, "t": time, "d": datetime.date(2024, 5, 1), "l": [1, 2], "f": 1.5}
    schema = pa.schema(
        {
            "n": pa.uint16(), "t": pa.timestamp("ns", "Europe/Rome"), "d": pa.date32(), "l": pa.list_(pa.int64()),
            "f": pa.float64(),
        }
    )  # fmt: skip
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], schema)
    lake.write("t", [batch])
    lake.write("t", [batch])
    assert sorted(lake.read("t"), key=str) == sorted([row, dict.fromkeys(row)] * 2, key=str)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([{"n": 1, "x": 2}], "the table has no column 'x'; it has: n, s.*new_columns=\"add\""),
        ([{"n": "a"}], "column 'n' is string, and int64 in the table"),
    ],
)
def test_rows_that_do_not_fit_are_refused(lake: Lake, given: Any, error: str) -> None:
    lake.write("t", [{"n": 1, "s": "a"}])
    with pytest.raises(hg.PlanError, match=error):
        lake.write("t", given)
    assert lake.read("t") == [{"n": 1, "s": "a"}]


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(3)], ids=str)
def test_a_column_of_fixed_length(lake: Lake, kind: pa.DataType) -> None:
    schema = pa.schema({"f": pa.binary(3), "s": pa.struct({"g": pa.binary(3)})})
    lake.catalog.create_table("lake.t", schema)
    row = {"f": b"abc", "s": {"g": b"xyz"}}
    given = pa.schema({"f": kind, "s": schema.field("s").type})
    lake.write("t", [pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], given)])
    assert sorted(lake.read("t"), key=str) == sorted([row, dict.fromkeys(row)], key=str)
    with pytest.raises(hg.SinkError, match="column 'f': .*widths must match"):
        lake.write("t", [{"f": b"abcd"}])


@pytest.mark.parametrize(
    ("type_", "path"),
    [
        (pa.timestamp("us"), "at"),
        (pa.list_(pa.struct({"from": pa.timestamp("us")})), "at.element.from"),
        (pa.map_(pa.string(), pa.timestamp("us")), "at.value"),
    ],
)
def test_a_table_with_nanoseconds_is_refused(lake: Lake, type_: pa.DataType, path: str) -> None:
    """The library reads such tables, and cannot create them."""
    table = lake.catalog.create_table("lake.t", pa.schema({"at": type_}))
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text().replace('"timestamp"', '"timestamp_ns"'))
    changed = file.with_name(file.name.replace("00000-", "00001-"))
    changed.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 0}))
    lake.catalog.register_table("lake.nanoseconds", f"file://{changed}")
    with pytest.raises(hg.PlanError, match=f"column '{path}' has nanoseconds, and the sink writes times in micro"):
        lake.sink("nanoseconds").prepare("job", pa.schema({"at": type_}))


@pytest.mark.parametrize("beginning", ["file:", "file://", ""])
def test_a_location_as_hadoop_writes_it(lake: Lake, tmp_path: Path, beginning: str) -> None:
    """Spark makes tables with such locations."""
    location = f"{beginning}{tmp_path}/else where/t"
    lake.catalog.create_table("lake.t", pa.schema({"n": pa.int64()}), location=location)
    lake.write("t", [numbers(0, 3)])
    assert sorted(row["n"] for row in lake.read("t")) == [0, 1, 2]
    assert list((tmp_path / "else where" / "t" / "data").glob("*.parquet"))


def test_a_store_where_nobody_can_own_the_results(lake: Lake) -> None:
    lake.catalog.create_table("lake.t", pa.schema({"n": pa.int64()}))
    table = lake.catalog.load_table("lake.t")
    with table.transaction() as change:
        change.set_properties({"write.data.path": "gs://lake/t"})
    with pytest.raises(hg.SinkError, match="lake.t: is in gs://; the sink writes only to"):
        lake.write("t", [numbers(0, 3)])


def test_a_table_with_rows_is_refused_on_request(lake: Lake) -> None:
    lake.catalog.create_table("lake.t", pa.schema({"n": pa.int64()}))
    for table in ("t", "new"):
        lake.write(table, [{"n": 1}], mode="error")
        with pytest.raises(hg.SinkError, match=f'{table}: the table has rows; choose another, .* or mode="append"'):
            lake.write(table, [{"n": 2}], mode="error")
        assert lake.read(table) == [{"n": 1}]


def test_new_columns_are_added_on_request(lake: Lake) -> None:
    lake.write("t", [{"n": 1, "s": "a"}])
    lake.write("t", [{"x": 2.5, "n": 2}], new_columns="add")
    rows = sorted(lake.read("t"), key=lambda row: row["n"])
    assert rows == [{"n": 1, "s": "a", "x": None}, {"n": 2, "s": None, "x": 2.5}]


def test_files_have_the_numbers_of_all_columns(lake: Lake) -> None:
    """Other engines find columns by number. If some have none, Spark reads nulls."""
    nested = pa.struct({"a": pa.int64(), "tags": pa.list_(pa.string())})
    schema = pa.schema({"n": pa.int64(), "s": nested, "m": pa.map_(pa.string(), pa.int64())})
    lake.write("t", [pa.RecordBatch.from_pylist([{"n": 1, "s": {"a": 2, "tags": ["x"]}, "m": [("k", 3)]}], schema)])
    table = lake.catalog.load_table("lake.t")
    [task] = table.scan().plan_files()
    written = pq.read_schema(task.file.file_path.removeprefix("file://"))
    assert numbers_of(written) == numbers_of(table.schema().as_arrow())
    assert len(numbers_of(written)) == 8


def numbers_of(columns: Any) -> list[tuple[str, bytes]]:
    """Return the names and numbers of all columns, and of those within them."""
    found = []
    for column in columns:
        within = [column.type.field(number) for number in range(column.type.num_fields)]
        if pa.types.is_map(column.type):
            within = [column.type.key_field, column.type.item_field]
        found += [(column.name, (column.metadata or {}).get(b"PARQUET:field_id", b"")), *numbers_of(within)]
    return found


def test_a_table_that_is_made_anew_with_other_columns(lake: Lake, tmp_path: Path) -> None:
    """The files have the numbers of the old table's columns, which are those of other columns in the new one."""
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    rows = pa.table({"a": range(6), "b": range(10, 16)}, schema=schema)
    program = SinkProgram(lake.sink("t"), StoredJob(), rows, home=str(tmp_path), subtasks=1)
    program.start()
    for step in (program.write, program.flush, program.store):
        step()
    lake.catalog.drop_table("lake.t")
    lake.catalog.create_table("lake.t", pa.schema([schema.field("b"), schema.field("a")]))
    with pytest.raises(hg.SinkError, match="column 'a' is int64 with the number 2 in the table, and .* number 1"):
        program.commit()
    lake.catalog.drop_table("lake.t")
    lake.catalog.create_table("lake.t", schema)
    program.commit()
    program.close()
    assert lake.read("t") == [{"a": 0, "b": 10}, {"a": 3, "b": 13}]


def test_a_missing_namespace_is_refused(lake: Lake) -> None:
    with pytest.raises(hg.SinkError, match="there is no namespace 'nowhere' in the catalog; create it"):
        hg.sinks.iceberg("nowhere.t", "test", options=lake.options).prepare("job", pa.schema({"n": pa.int64()}))


def test_a_catalog_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    options = {"type": "sql", "uri": f"sqlite:////{tmp_path}/no/such.db?password=very-secret-9"}
    with pytest.raises(hg.SinkError, match="iceberg: test.lake.t: ") as caught:
        hg.sinks.iceberg("lake.t", "test", options=options).prepare("job", pa.schema({"n": pa.int64()}))
    assert "very-secret-9" not in str(caught.value)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(hg.ConfigError, match="table='t' must be namespace.name"):
        hg.sinks.iceberg("t", "main")
    with pytest.raises(hg.ConfigError, match="options= must be a dict of strings"):
        hg.sinks.iceberg("a.t", "main", options={"a": 1})  # type: ignore[dict-item]


def test_other_writers_do_not_disturb(lake: Lake, tmp_path: Path) -> None:
    """Another program appends between all commits of a job with checkpoints."""
    config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="50 ms")
    env = hg.StreamEnvironment(deployment=LOCAL, config=config)
    source = behind_gate(hg.sources.generate(numbers, rows=1000, rate=2000.0, batch_rows=50), tmp_path, before=800)
    env.from_source(source).sink_to(lake.sink("t"))
    job = env.execute_async()
    others = 0
    while job.status() in ("CREATED", "RUNNING"):
        try:
            lake.catalog.load_table("lake.t").append(pa.table({"n": [-1]}))
            others += 1
        except (NoSuchTableError, CommitFailedException):
            pass  # the sink was faster
        if others == 5:
            open_gate(tmp_path)
    job.wait()
    found = sorted(row["n"] for row in lake.read("t"))
    assert others >= 5
    assert found == [-1] * others + list(range(1000))


def test_files_of_the_size_that_is_wanted(lake: Lake) -> None:
    batches = [numbers(start, 65_536) for start in range(0, 4 * 65_536, 65_536)]
    lake.write("small", batches, target_file_size="100 kb")
    lake.write("large", batches)
    small, large = (list(lake.catalog.load_table(f"lake.{name}").scan().plan_files()) for name in ("small", "large"))
    assert (len(small), len(large)) == (4, 1)
    assert all(task.file.file_size_in_bytes > 100_000 for task in small)
    assert sorted(row["n"] for row in lake.read("small")) == list(range(4 * 65_536))


def test_a_table_that_is_dropped_while_it_is_written(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job restarts as its strategy says, then fails. With the table in the catalog, a resume adds the rows left."""

    def start() -> hg.JobHandle:
        env = jobs.environment(
            parallelism=1, checkpoint_dir=tmp_path / "c", checkpoint_interval="20 ms",
            restart=hg.restart.fixed(2, delay=0),
        )  # fmt: skip
        source = behind_gate(hg.sources.generate(numbers, rows=2000, batch_rows=100), tmp_path, before=1000)
        env.from_source(source).sink_to(lake.sink("t"))
        return env.execute_async("dropped", resume="latest-if-any")

    job = start()
    jobs.eventually(lambda: len(lake.read("t")) == 1000)
    metadata = lake.catalog.load_table("lake.t").metadata_location
    lake.catalog.drop_table("lake.t")
    open_gate(tmp_path)
    error = jobs.error_of(job)
    assert isinstance(error, hg.SinkError)
    assert "Table does not exist: lake.t" in str(error)
    assert len([line for line in caplog.messages if "starts again from checkpoint" in line]) == 2
    lake.catalog.register_table("lake.t", metadata)
    assert start().wait(60).restarts == 0
    assert sorted(row["n"] for row in lake.read("t")) == list(range(2000))
