"""Lookups in an SQLite database: which rows a stream gets, what is refused, and which connections stay."""

from __future__ import annotations

import datetime
import gc
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import OperatorHarness, at

pytest.importorskip("adbc_driver_sqlite")
from headgate.connectors.adbc.database import DatabaseConnection
from headgate.operators.asked_table import AskedTable, OpenedTable
from tests.adbc.databases import execute

STREAM: list[dict[str, Any]] = [
    {"id": 1, "city": "Rome"},
    {"id": 2, "city": None},
    {"id": 3, "city": "Oslo"},
    {"id": 4, "city": "Rome"},
]


ITALY: dict[str, Any] = {"country": "Italy", "people": 3}
NORWAY: dict[str, Any] = {"country": None, "people": 1}
NONE: dict[str, Any] = {"country": None, "people": None}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    execute(
        path, "create table cities (city text primary key, country text, people integer)",
        "insert into cities values ('Rome', 'Italy', 3), ('Oslo', null, 1), ('Paris', 'France', 2), ('a''\"b', 'X', 0)",
    )  # fmt: skip
    return path


def table(path: Path, query: str = "cities") -> AskedTable:
    return hg.lookups.adbc("sqlite", str(path), query)


def looked_up(path: Path, rows: list[dict[str, Any]], query: str = "cities", **options: Any) -> list[dict[str, Any]]:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(hg.sources.iterable(rows))
    found: list[dict[str, Any]] = stream.lookup(table(path, query), **{"on": "city", **options}).collect().to_pylist()
    return found


def opened(path: Path, keys: pa.Schema, query: str = "cities") -> OpenedTable:
    asked = table(path, query)
    return asked.opened(keys, asked.columns(keys, None), 30.0)


def test_rows_get_the_columns_of_their_keys(database: Path) -> None:
    assert looked_up(database, STREAM) == [
        {"id": 1, "city": "Rome", "country": "Italy", "people": 3},
        {"id": 2, "city": None, "country": None, "people": None},
        {"id": 3, "city": "Oslo", "country": None, "people": 1},
        {"id": 4, "city": "Rome", "country": "Italy", "people": 3},
    ]
    wanted = pa.schema({"people": pa.int8()})
    found = looked_up(database, [{"city": "Paris"}, {"city": "x"}], how="inner", schema=wanted, cache_ttl="1 min")
    assert found == [{"city": "Paris", "people": 2}]


def test_one_query_has_all_keys_of_a_call(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[tuple[Any, ...]] = []
    query = DatabaseConnection.query
    monkeypatch.setattr(DatabaseConnection, "query", lambda *given: statements.append(given) or query(*given))
    asked = opened(database, pa.schema({"city": pa.string()}))
    statements.clear()
    keys = pa.record_batch({"city": ["x", "a'\"b", "Paris"]})
    for _ in range(2):
        assert asked(keys).to_pylist() == [
            {"city": "a'\"b", "country": "X", "people": 0}, {"city": "Paris", "country": "France", "people": 2},
        ]  # fmt: skip
    assert len([given for given in statements if len(given) > 2]) == 2
    asked.close()


def test_the_cache_saves_queries_until_its_rows_are_too_old(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without a row is in the cache, too."""
    asked: list[list[str]] = []
    query = DatabaseConnection.query

    def spy(connection: DatabaseConnection, statement: str, *values: Any) -> pa.Table:
        if values:  # the keys as JSON: a list for each
            asked.append(sorted(key for (key,) in json.loads(values[0])))
        return query(connection, statement, *values)

    monkeypatch.setattr(DatabaseConnection, "query", spy)
    rome, oslo, nowhere = {"city": "Rome"}, {"city": "Oslo"}, {"city": "nowhere"}
    schema = pa.schema({"city": pa.string()})
    with OperatorHarness(lambda rows: rows.lookup(table(database), on="city", cache_ttl="1 min"), schema=schema) as one:
        for given in ([rome, rome], [rome, oslo, nowhere], [oslo, nowhere, rome]):
            found = [{**row, **{"Rome": ITALY, "Oslo": NORWAY}.get(row["city"], NONE)} for row in given]
            assert one.push(given) == found
        assert asked == [["Rome"], ["Oslo", "nowhere"]]
        one.advance_clock(at("59 s"))
        one.push([rome, oslo])
        assert len(asked) == 2
        one.advance_clock(at("60 s"))
        one.push([rome, oslo])
        assert asked[2:] == [["Oslo", "Rome"]]


def test_keys_may_have_several_columns(database: Path) -> None:
    row = f"insert into pairs values ({2**60 + 1}, 'x', .5)"
    execute(database, "create table pairs (a integer, b text, c real)", row)
    keys = pa.record_batch({"b": ["x", "y"], "a": pa.array([2**60 + 1] * 2, pa.int64())})
    asked = opened(database, keys.schema, "select * from pairs")
    assert asked(keys).to_pylist() == [{"b": "x", "a": 2**60 + 1, "c": 0.5}]
    assert asked(keys.slice(1)).num_rows == 0
    asked.close()


def test_rows_without_a_value_have_the_type_of_the_schema(database: Path) -> None:
    """SQLite's driver says int64, which no cast turns into such types."""
    execute(
        database, "create table days (id integer primary key, day text, data blob)",
        "insert into days values (1, '2024-05-01', x'00ff'), (2, null, null)",
    )  # fmt: skip
    wanted = pa.schema({"day": pa.date32(), "data": pa.binary()})
    one: dict[str, Any] = {"day": datetime.date(2024, 5, 1), "data": b"\x00\xff"}
    for ids in ([1, 2, 3], [2], [3]):
        expected = [{"id": n, **(one if n == 1 else dict.fromkeys(one))} for n in ids]
        assert looked_up(database, [{"id": n} for n in ids], "days", on="id", schema=wanted) == expected


def test_a_key_with_two_rows_fails_the_job(database: Path) -> None:
    query = "select city, country from cities union all select 'Rome', 'Georgia'"
    with pytest.raises(hg.DataError, match="adbc: the query returned 2 rows for the key city='Rome'"):
        looked_up(database, STREAM, query)


def test_an_error_of_the_database_is_repeated_and_leaves_no_connection(database: Path) -> None:
    keys = pa.record_batch({"city": ["Paris"]})
    asked = opened(database, keys.schema)
    assert asked(keys).num_rows == 1
    execute(database, "alter table cities rename to moved")
    with pytest.raises(hg.SourceError, match="adbc: table cities: .*no such table"):
        asked(keys)
    execute(database, "alter table moved rename to cities")
    assert asked(keys).num_rows == 1
    asked.close()
    gc.collect()  # an open connection would warn, and the test fail


def test_all_attempts_fail_with_the_error_of_the_database(database: Path) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(hg.sources.iterable(STREAM)).lookup(table(database), on="city", retries=1)
    execute(database, "drop table cities")
    with pytest.raises(hg.SourceError, match="all 2 attempts failed; the last: adbc: table cities: .*no such table"):
        stream.collect()


@pytest.mark.parametrize(
    ("query", "options", "error"),
    [
        ("missing", {}, "adbc: table missing: .*no such table"),
        ("cities", {"on": "id"}, "adbc: table cities: there is no column 'id'; there are: city, country, people"),
        ("cities", {"schema": pa.schema({"x": pa.int64()})}, "there is no column 'x'"),
        ("select city, country as id from cities", {}, "the stream and the table both have 'id'|both have id"),
        ("select 1.5 as half, 1 as x", {"on": "half"}, "on='half' is double; a key is a whole number or text"),
        ("cities", {"columns": ["people"]}, "a database has no columns= and refresh="),
    ],
)
def test_what_does_not_fit_is_refused_at_the_call(database: Path, query: str, options: Any, error: str) -> None:
    with pytest.raises((hg.PlanError, hg.SourceError), match=error):
        looked_up(database, [{"id": 1, "city": "Rome", "half": 0.5}], query, **options)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(hg.ConfigError, match="query= must be a table or a select"):
        hg.lookups.adbc("sqlite", "a.db", " ")
    with pytest.raises(hg.ConfigError, match="must be one of 'postgresql', 'sqlite'"):
        hg.lookups.adbc("oracle", "a.db", "cities")  # type: ignore[arg-type]
