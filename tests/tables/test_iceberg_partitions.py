"""The sink into partitioned Iceberg tables: readers find each row by the values of its partition."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.file_sinks.partition_by import NO_VALUE
from headgate.testing import check_sink
from headgate.testing.sink_program import SinkProgram, StoredJob
from tests.tables.test_iceberg_sink import Lake

pytest.importorskip("pyiceberg.catalog.sql")
from pyiceberg.transforms import BucketTransform, parse_transform

expressions: Any = pytest.importorskip("pyiceberg.expressions")

UTC = datetime.UTC
ROWS = pa.schema({"n": pa.int64(), "s": pa.string()})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def partitioned(lake: Lake, name: str, schema: pa.Schema, fields: Sequence[tuple[str, str]], **options: str) -> Any:
    """Create a table, partitioned by these columns and transforms."""
    table = lake.catalog.create_table(f"lake.{name}", schema, properties=options)
    with table.update_spec() as update:
        for column, transform in fields:
            update.add_field(column, parse_transform(transform))
    return table


def files_of(lake: Lake, name: str) -> list[dict[str, Any]]:
    """Return the values of the partition of each data file."""
    files = lake.catalog.load_table(f"lake.{name}").inspect.files()
    return [row["partition"] for row in files.to_pylist()]


@pytest.mark.parametrize("lines", [3, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_it_keeps_the_contract(lake: Lake, lines: int) -> None:
    def make(name: str) -> hg.Sink:
        if not lake.catalog.table_exists(f"lake.{name}"):
            partitioned(lake, name, ROWS, [("s", "identity")])
        return lake.sink(name)

    check_sink(make, lake.read, rows=[{"n": n, "s": f"part {n % 3}"} for n in range(30)], lines=lines)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["Rome", "a/b %=c?#", "", NO_VALUE, "null", "x" * 100, None, "Rome"]),
        (pa.int32(), [7, -7, 0, None]),
        (pa.int64(), [1 << 40, 3]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [datetime.date(2024, 5, 1), datetime.date(1969, 12, 31), None]),
        (pa.timestamp("us", "UTC"), [datetime.datetime(2024, 5, 1, 10, 0, 0, 7, UTC),
                                     datetime.datetime(1969, 1, 1, tzinfo=UTC), None]),
        (pa.timestamp("us"), [datetime.datetime(2024, 5, 1, 10)]),
    ],
    ids=str,
)  # fmt: skip
def test_each_row_is_in_the_partition_of_its_value(lake: Lake, type_: pa.DataType, values: list[Any]) -> None:
    """Without statistics in the table, from which the library would take the values."""
    schema = pa.schema({"n": pa.int64(), "p": type_})
    partitioned(lake, "t", schema, [("p", "identity")], **{"write.metadata.metrics.default": "none"})
    rows = [{"n": n, "p": value} for n, value in enumerate(values)]
    lake.write("t", [pa.RecordBatch.from_pylist(rows, schema)])
    assert sorted(lake.read("t"), key=lambda row: row["n"]) == rows
    assert len(files_of(lake, "t")) == len(set(values))
    assert {found["p"] for found in files_of(lake, "t")} == set(values)
    table = lake.catalog.load_table("lake.t")
    for value in values:
        is_it = expressions.IsNull("p") if value is None else expressions.EqualTo("p", _literal(value))
        found = table.scan(row_filter=is_it)
        assert sorted(found.to_arrow()["n"].to_pylist()) == [n for n, other in enumerate(values) if other == value]
        assert len(list(found.plan_files())) == 1, "readers skip the files of the other partitions"


def _literal(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.date) else value


TIMES = [
    datetime.datetime(2024, 5, 1, 10, 59, 59, 999_999, UTC), datetime.datetime(2024, 5, 1, 11, tzinfo=UTC),
    datetime.datetime(2024, 5, 2, tzinfo=UTC), datetime.datetime(2024, 6, 1, tzinfo=UTC),
    datetime.datetime(1970, 1, 1, tzinfo=UTC), datetime.datetime(1969, 12, 31, 23, 59, 59, 1, UTC),
    datetime.datetime(1901, 2, 3, 4, 5, tzinfo=UTC), None,
]  # fmt: skip


@pytest.mark.parametrize("transform", ["year", "month", "day", "hour"])
@pytest.mark.parametrize("type_", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str)
def test_the_parts_of_times_are_those_of_the_library(lake: Lake, transform: str, type_: pa.DataType) -> None:
    if transform == "hour" and pa.types.is_date(type_):
        pytest.skip("days have no hours")
    schema = pa.schema({"n": pa.int64(), "at": type_})
    micros = pa.array(TIMES, pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    times = micros.cast(type_, safe=False)
    table = partitioned(lake, "t", schema, [("at", transform)])
    lake.write("t", [pa.RecordBatch.from_arrays([pa.array(range(len(TIMES))), times], schema=schema)])
    numbers = times.cast(pa.int32() if pa.types.is_date(type_) else pa.int64()).to_pylist()
    of_library = parse_transform(transform).transform(table.schema().find_field("at").field_type)
    found = {task.file.partition[0] for task in lake.catalog.load_table("lake.t").scan().plan_files()}
    assert found == {of_library(number) for number in numbers}
    assert [row["at"] for row in sorted(lake.read("t"), key=lambda row: row["n"])] == times.to_pylist()


def test_two_fields_of_which_one_was_removed(lake: Lake) -> None:
    table = partitioned(lake, "t", ROWS, [("n", "identity"), ("s", "identity")], **{"format-version": "1"})
    with table.update_spec() as update:
        update.remove_field("n")
    lake.write("t", [{"n": 1, "s": "a"}, {"n": 2, "s": "a"}, {"n": 3, "s": "b"}])
    assert sorted(found["s"] for found in files_of(lake, "t")) == ["a", "b"]
    assert sorted(row["n"] for row in lake.read("t")) == [1, 2, 3]


@pytest.mark.parametrize(
    ("column", "transform", "error"),
    [
        ("s", "bucket[4]", r"partitioned by bucket\[4\] of 's'; the sink writes to partitions by identity, year"),
        ("s", "truncate[2]", r"partitioned by truncate\[2\] of 's'"),
        ("f", "identity", "partitioned by column 'f'; only int, string, bool and time columns can"),
    ],
)
def test_other_partitions_are_refused(lake: Lake, column: str, transform: str, error: str) -> None:
    partitioned(lake, "t", pa.schema({"s": pa.string(), "f": pa.float64()}), [(column, transform)])
    with pytest.raises(hg.PlanError, match=error):
        lake.write("t", [{"s": "a", "f": 1.0}])


def add_bucket(update: Any) -> None:
    update.add_field("s", BucketTransform(4))


def remove(update: Any) -> None:
    update.remove_field("s")


@pytest.mark.parametrize("change", [remove, add_bucket])
def test_partitions_that_change_before_a_commit(lake: Lake, tmp_path: Path, change: Callable[[Any], None]) -> None:
    """The rows of the checkpoint are not lost: they are added when the table has its partitions again."""
    partitioned(lake, "t", ROWS, [("s", "identity")])
    rows = pa.Table.from_pylist([{"n": n, "s": f"part {n % 2}"} for n in range(12)], ROWS)
    program = SinkProgram(lake.sink("t"), StoredJob(), rows, home=str(tmp_path), subtasks=1)
    program.start()
    for step in (program.write, program.flush, program.store):
        step()
    with lake.catalog.load_table("lake.t").update_spec() as update:
        change(update)
    with pytest.raises(hg.SinkError, match=r"the table is partitioned by \[.*\], and the file .* by \['s'\]"):
        program.commit()
    assert lake.read("t") == []
    with lake.catalog.load_table("lake.t").update_spec() as update:
        if change is remove:
            update.add_identity("s")
        else:
            update.remove_field("s_bucket_4")
    program.commit()
    program.go_on()
    assert sorted(row["n"] for row in lake.read("t")) == list(range(12))
