"""The database source, from SQLite files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import check_source
from tests.runtime.jobs import error_of, eventually

pytest.importorskip("adbc_driver_sqlite")
from tests.adbc.databases import execute

ROWS = [{"id": n, "s": f"row {n}"} for n in range(30)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    values = ", ".join(f"({row['id']}, '{row['s']}')" for row in reversed(ROWS))
    execute(tmp_path / "a.db", "create table rows (id integer, s text)", f"insert into rows values {values}")
    return tmp_path / "a.db"


def source(path: Path, query: str = "rows", by: str = "id", **options: Any) -> hg.Source:
    return hg.sources.adbc("sqlite", str(path), query, by=by, **options)


def collected(made: hg.Source) -> list[dict[str, Any]]:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    rows: list[dict[str, Any]] = env.from_source(made).collect().to_pylist()
    return rows


def test_it_keeps_the_contract(database: Path) -> None:
    execute(database, "create table none (id integer, s text)")
    check_source(
        lambda: source(database, bounded=True, batch_rows=4), ROWS,
        idle=lambda: source(database, "none", interval="10 ms", schema=pa.schema({"id": pa.int64(), "s": pa.string()})),
        broken=lambda: source(database, "missing", schema=pa.schema({"id": pa.int64()})),
    )  # fmt: skip


def test_a_query_has_its_own_columns(database: Path) -> None:
    made = source(database, "select id * 2 as twice, s from rows where id < 5", "twice", bounded=True, start=2)
    assert made.schema.equals(pa.schema({"twice": pa.int64(), "s": pa.string()}))
    assert collected(made) == [{"twice": 2 * n, "s": f"row {n}"} for n in (2, 3, 4)]


def test_text_can_order_the_rows(database: Path) -> None:
    made = source(database, by="s", bounded=True, schema=pa.schema({"s": pa.string()}), batch_rows=7)
    assert [row["s"] for row in collected(made)] == sorted(f"row {n}" for n in range(30))


@pytest.mark.parametrize(
    ("query", "by", "error"),
    [
        ("other", "id", "table other: the job of the checkpoint reads table rows, and knows its place there; give"),
        ("rows", "s", "table rows: the job of the checkpoint reads by='id', and knows its place there, not in 's'"),
        ("select * from rows", "s", "the query: the job of the checkpoint reads by='id'"),
    ],
)
def test_a_job_does_not_resume_with_another_table_or_column(database: Path, query: str, by: str, error: str) -> None:
    execute(database, "create table other as select * from rows")
    with pytest.raises(hg.SourceError, match=error):
        source(database, query, by).restore(source(database).prepared())


@pytest.mark.parametrize("before", ["rows", "select * from rows"])
@pytest.mark.parametrize("now", ["rows", "select * from rows where id is not null"])
def test_a_job_resumes_with_a_query_and_with_the_table_itself(database: Path, before: str, now: str) -> None:
    """The source itself advises a query when a row has no place."""
    source(database, now).restore(source(database, before).prepared())


def test_rows_that_are_added_later_are_read(database: Path) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    found = hg.sinks.collect()
    env.from_source(source(database, start=27, interval="10 ms")).sink_to(found)
    job = env.execute_async()
    eventually(lambda: found.to_table().num_rows == 2)
    execute(database, "insert into rows values (31, 'later')")
    eventually(lambda: found.to_table().num_rows == 3)
    job.cancel()
    assert found.to_table().to_pylist()[-1] == {"id": 31, "s": "later"}


def test_a_row_without_a_place_in_the_order_is_refused(database: Path) -> None:
    """No query after a value returns it, so it would be lost in silence."""
    execute(database, "insert into rows values (null, 'lost')")
    with pytest.raises(hg.SourceError, match="a row has no value in by='id'.*select .* from rows where id is not null"):
        collected(source(database, bounded=True))
    whole = source(database, "select id, s from rows where id is not null", bounded=True)
    assert collected(whole) == ROWS


def test_a_row_without_a_place_that_is_added_later_fails_the_job(database: Path) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    found = hg.sinks.collect()
    env.from_source(source(database, interval="10 ms")).sink_to(found)
    job = env.execute_async()
    eventually(lambda: found.to_table().num_rows == len(ROWS))
    execute(database, "insert into rows values (null, 'lost')")
    error = error_of(job)
    assert isinstance(error, hg.SourceError)
    assert "a row has no value in by='id'" in str(error)


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.bool_(), pa.decimal128(9, 2), pa.list_(pa.int8())]
)
@pytest.mark.parametrize("batch_rows", [1, 100])
def test_rows_without_a_value_have_the_type_of_the_schema(database: Path, kind: pa.DataType, batch_rows: int) -> None:
    """SQLite's driver says int64, which no cast turns into such types."""
    query = "select id, null as x from rows"
    schema = pa.schema({"id": pa.int64(), "x": kind})
    made = source(database, query, bounded=True, schema=schema, batch_rows=batch_rows)
    assert collected(made) == [{"id": row["id"], "x": None} for row in ROWS]
    assert collected(source(database, query + " where id < 0", bounded=True, schema=schema)) == []


def test_values_may_come_after_many_nulls(database: Path) -> None:
    """By default, SQLite's driver looks at 1024 rows to find the types."""
    execute(
        database, "create table late (id integer primary key, s text)",
        "insert into late with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) "
        "select i, case when i > 2500 then 'row ' || i end from n",
    )  # fmt: skip
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    rows = collected(source(database, "late", bounded=True, schema=schema))
    assert [row["s"] for row in rows] == [None] * 2500 + [f"row {n}" for n in range(2501, 3001)]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda path: source(path, "missing", bounded=True), "adbc: table missing: .*no such table"),
        (lambda path: source(path, "select missing from rows", bounded=True), "adbc: the query: .*no such column"),
        (lambda path: source(path, bounded=True, by="x"), "by='x' must be one of: id, s"),
        (
            lambda path: source(path, bounded=True, schema=pa.schema({"id": pa.int64(), "y": pa.int64()})),
            "there is no column 'y'",
        ),
        (
            lambda path: source(path, "select 1.5 as id", bounded=True),
            "by='id' is double; it must be a whole number or text",
        ),
        (lambda path: source(path, "select 1 as id, s from rows", bounded=True), "has a value twice after None"),
        (  # 0, 1, 1, 2, 2 and so on: the last row of a batch, and the first of the next one
            lambda path: source(path, "select (id + 1) / 2 as id, s from rows", bounded=True, batch_rows=2),
            "has a value twice after None",
        ),
        (
            lambda path: source(path, bounded=True, schema=pa.schema({"id": pa.int64(), "s": pa.int64()})),
            "not of the schema",
        ),
    ],
)
def test_a_wrong_query_is_refused(database: Path, make: Callable[[Path], hg.Source], error: str) -> None:
    with pytest.raises(hg.SourceError, match=error):
        collected(make(database))


@pytest.mark.parametrize("batch_rows", [1, 3, 9])
def test_texts_that_are_equal_for_the_database_are_refused_between_batches(tmp_path: Path, batch_rows: int) -> None:
    """The query after the last row of a batch would leave out the other row."""
    path = tmp_path / "a.db"
    values = "insert into names values ('a'), ('b'), ('c'), ('C'), ('d')"
    execute(path, "create table names (name text collate nocase)", values)
    made = source(path, "names", "name", bounded=True, batch_rows=batch_rows)
    if batch_rows == 9:
        assert len(collected(made)) == 5
    else:
        with pytest.raises(hg.SourceError, match="the column 'name' has a value twice after "):
            collected(made)
    execute(path, "delete from names where name = 'C'", "insert into names values ('C')")
    assert len(collected(made)) == 4


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"query": " "}, "query= must be"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"start": 1.5}, "start=1.5 must be"),
        ({"interval": "x"}, "interval"),
    ],
)
def test_impossible_arguments_are_refused(database: Path, options: dict[str, Any], error: str) -> None:
    with pytest.raises(hg.ConfigError, match=error):
        source(database, **options)


def test_a_forged_position_is_refused(database: Path) -> None:
    made = source(database)
    made.check_position({"rows": ["open", 7]})
    states: list[Any] = [["open", 1.5], ["open", {}], ["open", True], ["other", 1], ["open"]]
    for forged in [*({"rows": state} for state in states), states]:
        with pytest.raises(ValueError, match="position"):
            made.check_position(forged)
