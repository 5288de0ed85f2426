"""The database connectors with a real PostgreSQL server."""

from __future__ import annotations

import datetime
import decimal
import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.adbc import staging
from headgate.connectors.adbc.commit_table import CommitTable
from headgate.testing import check_sink, check_source
from tests.postgres_server import PASSWORD, Postgres
from tests.runtime import jobs
from tests.runtime.faults import behind_gate, open_gate

LOCAL = hg.LocalDeployment(processes=False)


def environment(**options: Any) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(deployment=LOCAL, config=hg.Config(**options))


def write(postgres: Postgres, table: str, rows: Any, uri: str = "", **options: Any) -> None:
    env = environment()
    sink = hg.sinks.adbc("postgresql", uri or postgres.uri, table, **options)
    env.from_source(hg.sources.iterable(rows)).sink_to(sink)
    env.execute()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lines", [1, pytest.param(150, marks=pytest.mark.soak)])
def test_the_sink_keeps_the_contract(postgres: Postgres, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """test_adbc_sink.py crashes at more lines, with SQLite in less time.

    A writer with much more than the rows of the kit waits for a driver that commits and commits.
    """
    monkeypatch.setattr(CommitTable, "is_locked", lambda commits, connection, run: True)
    monkeypatch.setattr(staging, "MOST_STAGED", 1 << 16)
    monkeypatch.setattr(staging, "_BYTES_HELD", 1 << 14)
    made: dict[str, str] = {}

    def make(name: str) -> hg.Sink:
        if name not in made:
            made[name] = postgres.table("n int primary key, s text")
        return hg.sinks.adbc("postgresql", postgres.uri, made[name])

    checkpoints = [2] if lines == 1 else [1, 2, 3]
    check_sink(
        make, lambda name: postgres.rows(f"select n, s from {made[name]}"), stalled=lambda: make("stalled"),
        checkpoints=checkpoints, lines=lines,
    )  # fmt: skip
    assert postgres.rows("select tablename from pg_tables where tablename like 'headgate_stage%'") == []


def test_the_source_keeps_the_contract(postgres: Postgres) -> None:
    table, none = postgres.table("n bigint primary key"), postgres.table("n bigint")
    postgres.execute(f"insert into {table} select generate_series(0, 29)")

    def source(name: str, **options: Any) -> hg.Source:
        return hg.sources.adbc("postgresql", postgres.uri, name, by="n", **options)

    check_source(
        lambda: source(table, bounded=True, batch_rows=4), [{"n": n} for n in range(30)],
        idle=lambda: source(none, interval="10 ms"),
        broken=lambda: source("missing", schema=pa.schema({"n": pa.int64()})),
    )  # fmt: skip


def test_values_become_those_of_the_columns(postgres: Postgres) -> None:
    numbers = "n smallint, d numeric(10, 2), a int[]"
    table = postgres.table(f"{numbers}, t timestamptz, j jsonb, u uuid, b bytea, k date, v bool")
    row = {
        "n": 7,
        "d": 1.5,
        "t": datetime.datetime(2024, 5, 1, 10, tzinfo=datetime.UTC),
        "j": '{"a": [1]}',
        "u": "6f1c2f4e-6f0f-4b7e-8f5a-0a3a4b5c6d7e",
        "a": [1, 2],
        "b": b"x",
        "k": datetime.date(2024, 5, 1),
        "v": True,
    }
    schema = pa.schema(
        {
            "n": pa.int64(), "d": pa.decimal128(10, 2), "t": pa.timestamp("us", "UTC"), "j": pa.string(),
            "u": pa.string(), "a": pa.list_(pa.int64()), "b": pa.binary(), "k": pa.date32(), "v": pa.bool_(),
        }
    )  # fmt: skip
    batch = pa.RecordBatch.from_pylist([{**row, "d": decimal.Decimal("1.50")}, dict.fromkeys(row)], schema)
    write(postgres, table, [batch])
    found = postgres.rows(f"select n, d::float8, t, j->>'a' as j, u::text, a, b, k, v from {table} order by n")
    assert found == [{**row, "j": "[1]"}, dict.fromkeys(row)]


def test_a_table_may_be_in_a_schema_of_its_own(postgres: Postgres) -> None:
    postgres.execute('create schema if not exists "Own"', 'create table "Own"."My Table" ("the n" int)')
    write(postgres, "Own.My Table", [{"the n": 3}])
    assert postgres.rows('select * from "Own"."My Table"') == [{"the n": 3}]
    source = hg.sources.adbc("postgresql", postgres.uri, "Own.My Table", by="the n", bounded=True)
    assert environment().from_source(source).collect().to_pylist() == [{"the n": 3}]


def test_the_source_reads_a_query(postgres: Postgres) -> None:
    table = postgres.table("id int primary key, name text, amount numeric")
    postgres.execute(f"insert into {table} select n, 'row ' || n, n + 0.5 from generate_series(1, 500) as n")
    query = f"select id, name, amount::float8 as amount from {table}"
    source = hg.sources.adbc("postgresql", postgres.uri, query, by="id", bounded=True, batch_rows=64)
    rows = environment().from_source(source).collect().to_pylist()
    assert rows == [{"id": n, "name": f"row {n}", "amount": n + 0.5} for n in range(1, 501)]
    by_name = hg.sources.adbc("postgresql", postgres.uri, query, by="name", bounded=True, batch_rows=64, start="row 98")
    assert [row["id"] for row in environment().from_source(by_name).collect().to_pylist()] == [99]
    with pytest.raises(hg.SourceError, match="column 'amount' is numeric, which has no type in Arrow; cast it"):
        hg.sources.adbc("postgresql", postgres.uri, table, by="id")


def test_texts_that_are_equal_for_the_database_are_refused_between_batches(postgres: Postgres) -> None:
    postgres.execute("create collation blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    table = postgres.table("name text collate blurred")
    postgres.execute(f"insert into {table} values ('a'), ('A'), ('b')")
    source = hg.sources.adbc("postgresql", postgres.uri, table, by="name", bounded=True, batch_rows=1)
    with pytest.raises(hg.SourceError, match="the column 'name' has a value twice after None"):
        environment().from_source(source).collect()


def test_a_lookup_finds_rows_by_keys_of_many_types(postgres: Postgres) -> None:
    uuid = "6f1c2f4e-6f0f-4b7e-8f5a-0a3a4b5c6d7e"
    table = postgres.table("u uuid, n int, v varchar(9), day date, x text, primary key (u, n, v, day)")
    postgres.execute(f"insert into {table} values ('{uuid}', 1, 'a', '2024-05-01', 'found')")
    row = {"u": uuid, "n": 1, "v": "a", "day": "2024-05-01"}
    stream = environment().from_source(hg.sources.iterable([row, {**row, "n": 2}, {**row, "day": None}]))
    asked = hg.lookups.adbc("postgresql", postgres.uri, table)
    found = stream.lookup(asked, on=list(row)).collect().to_pylist()
    assert [each["x"] for each in found] == ["found", None, None]
    with pytest.raises(hg.PlanError, match="column 'n' is string in the stream and int32 in the table; convert one"):
        environment().from_source(hg.sources.iterable([{"n": "1"}])).lookup(asked, on="n")
    query = f"select n, 1.5::numeric as amount from {table}"
    with pytest.raises(hg.SourceError, match="column 'amount' is numeric, which has no type in Arrow; cast it"):
        stream.lookup(hg.lookups.adbc("postgresql", postgres.uri, query), on="n")
    bad = environment().from_source(hg.sources.iterable([{"u": "x"}]))
    with pytest.raises(hg.SourceError, match=r"invalid input syntax for type uuid.*SQLSTATE 22P02"):
        bad.lookup(asked, on="u", retries=0).collect()


def test_a_lookup_goes_on_after_its_connections_were_cut(postgres: Postgres) -> None:
    table = postgres.table("n int primary key, x text")
    postgres.execute(f"insert into {table} values (1, 'one')")
    keys = pa.record_batch({"n": [1, 2]})
    asked = hg.lookups.adbc("postgresql", postgres.uri, table)
    opened = asked.opened(keys.schema, asked.columns(keys.schema, None), 5.0)
    assert opened(keys).to_pylist() == [{"n": 1, "x": "one"}]
    postgres.rows("select count(pg_terminate_backend(pid)) from pg_stat_activity where pid != pg_backend_pid()")
    with pytest.raises(hg.SourceError, match=f"adbc: table {table}: "):
        opened(keys)
    assert opened(keys).to_pylist() == [{"n": 1, "x": "one"}]
    opened.close()


@pytest.mark.parametrize(
    ("columns", "row", "options", "error"),
    [
        (None, {"n": 1}, {}, r"relation \"nothing\" does not exist \(SQLSTATE 42P01\); create the table"),
        ("m int", {"n": 1}, {}, "the table has no column 'n'; it has: m"),
        ("n jsonb", {"n": 1}, {}, r"cannot cast type bigint to jsonb .*convert the column"),
        ("n int", {"n": 1}, {"mode": "upsert", "key": "n"}, r"42P10.*needs a primary key or a unique constraint"),
        ("n int", {"n": 2**40}, {}, r"out of range \(SQLSTATE 22003\); a value does not fit its column"),
        ("n int, m int not null", {"n": 1}, {}, r"not-null constraint \(SQLSTATE 23502\)"),
        ("n varchar(3)", {"n": "too long"}, {}, r"too long for type character varying\(3\)"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    postgres: Postgres, columns: str | None, row: Any, options: Any, error: str
) -> None:
    table = postgres.table(columns) if columns else "nothing"
    with pytest.raises((hg.SinkError, hg.PlanError), match=error):
        write(postgres, table, [row], **options)
    if columns:
        assert postgres.rows(f"select * from {table}") == []


def test_values_keep_their_length(postgres: Postgres) -> None:
    """A cast to a type with a length would cut them. The types `char` and `bit` mean one character and one bit."""
    table = postgres.table("city char(10) primary key, n int")
    write(postgres, table, [{"city": "Rome", "n": 1}, {"city": "Riga", "n": 2}], mode="upsert", key="city")
    write(postgres, table, [{"city": "Riga", "n": 3}], mode="upsert", key="city")
    found = postgres.rows(f"select rtrim(city) as city, n from {table} order by n")
    assert found == [{"city": "Rome", "n": 1}, {"city": "Riga", "n": 3}]
    table = postgres.table("b bit(8), v bit varying, c char(4)[]")
    write(postgres, table, [{"b": "10101010", "v": "101", "c": ["Rome"]}])
    found = postgres.rows(f"select b::text, v::text, c::text from {table}")
    assert found == [{"b": "10101010", "v": "101", "c": "{Rome}"}]


UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
PRICE = "create domain price as numeric(12, 2)"
ANY_CASE = "create collation anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


@pytest.mark.parametrize(
    ("kind", "keys", "made"),
    [
        ("uuid", [UUID, UUID.upper()], []),
        ("char(6)", ["Rome", "Rome "], []),
        ("numeric(10, 1)", [decimal.Decimal("1.01"), decimal.Decimal("1.04")], []),
        ("price", [1.001, 1.002], [PRICE]),
        ("timestamptz(3)", [NOON + datetime.timedelta(microseconds=n) for n in (100, 200)], []),
        ("text collate anycase", ["Rome", "ROME"], [ANY_CASE]),
    ],
)
def test_keys_that_are_equal_in_the_table_are_one_row(
    postgres: Postgres, kind: str, keys: list[Any], made: list[str]
) -> None:
    """The last of the rows wins, as for keys that are equal before they are cast."""
    postgres.execute(*made)
    table = postgres.table(f"id {kind} primary key, n int")
    write(postgres, table, [{"id": key, "n": n} for n, key in enumerate(keys)], mode="upsert", key="id")
    assert postgres.rows(f"select n from {table}") == [{"n": 1}]


def test_domains_check_the_whole_value(postgres: Postgres) -> None:
    postgres.execute(
        "create domain short as varchar(3)",
        "create domain shorter as short check (value <> 'bad')",
        "create domain address as text check (value like '%@%')",
    )
    table = postgres.table("s shorter, a address")
    write(postgres, table, [{"s": "Rom", "a": "a@b"}])
    for row, error in [({"s": "Rome"}, "too long"), ({"s": "bad"}, "check constraint"), ({"a": "ab"}, "check constr")]:
        with pytest.raises(hg.SinkError, match=error):
            write(postgres, table, [row])
    assert postgres.rows(f"select s::text, a::text from {table}") == [{"s": "Rom", "a": "a@b"}]


@pytest.mark.parametrize("kind", ["numeric", "bigint"])
def test_large_unsigned_numbers_keep_their_values(postgres: Postgres, kind: str) -> None:
    """They are too large for `bigint`, to which the driver would wrap them."""
    table = postgres.table(f"n {kind} primary key, s text")
    rows = [{"n": n, "s": str(n)} for n in (5, 2**63, 2**64 - 1)]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema({"n": pa.uint64(), "s": pa.string()}))
    if kind == "bigint":
        with pytest.raises(hg.SinkError, match="out of range"):
            write(postgres, table, [batch])
    write(postgres, table, [batch.slice(0, 1) if kind == "bigint" else batch], mode="upsert", key="n")
    found = postgres.rows(f"select n::text, s from {table} order by length(s), s")
    assert [row["n"] for row in found] == [row["s"] for row in found] == [str(row["n"]) for row in rows[: len(found)]]


@pytest.mark.parametrize("kind", [pa.list_(pa.uint64()), pa.large_list(pa.uint64())], ids=str)
def test_lists_of_large_unsigned_numbers_keep_their_values(postgres: Postgres, kind: pa.DataType) -> None:
    table = postgres.table("n numeric[]")
    write(postgres, table, [pa.record_batch([pa.array([[5, None, 2**64 - 1], None], kind)], names=["n"])])
    found = postgres.rows(f"select n::text from {table}")
    assert found == [{"n": "{5,NULL,18446744073709551615}"}, {"n": None}]


@pytest.mark.parametrize(
    "value",
    ["'infinity'::date", "'-infinity'::date", "'infinity'::timestamp", "'-infinity'::timestamptz",
     "array['2024-05-01', 'infinity']::timestamp[]"],
)  # fmt: skip
def test_infinite_times_are_refused(postgres: Postgres, value: str) -> None:
    """Arrow has no infinity: the driver returns a date BC."""
    query = f"select 1 as id, {value} as until"
    source = hg.sources.adbc("postgresql", postgres.uri, query, by="id", bounded=True)
    with pytest.raises(hg.SourceError, match="column 'until' has a .* that Arrow does not have: inf.*select nullif"):
        environment().from_source(source).collect()
    stream = environment().from_source(hg.sources.iterable([{"id": 1}]))
    with pytest.raises(hg.SourceError, match="column 'until' has a .* that Arrow does not have: inf.*select nullif"):
        stream.lookup(hg.lookups.adbc("postgresql", postgres.uri, query), on="id", retries=0).collect()


def test_the_first_and_the_last_time_of_the_database_are_read(postgres: Postgres) -> None:
    query = (
        "select 1 as id, '4714-11-24 BC'::date as d, '4714-11-24 00:00 BC'::timestamp as first, "
        "'294246-12-31 23:59:59.999999'::timestamp as last, nullif('infinity'::date, 'infinity') as none"
    )
    source = hg.sources.adbc("postgresql", postgres.uri, query, by="id", bounded=True)
    found = environment().from_source(source).collect()
    assert found["d"].cast(pa.int32()).to_pylist() == [-2_440_588]
    assert found["first"].cast(pa.int64()).to_pylist() == [-2_440_588 * 86_400_000_000]
    assert found["last"].cast(pa.int64()).to_pylist() == [9_223_371_244_799_999_999]
    assert found["none"].null_count == 1


def test_missing_rights_and_servers_are_named_without_the_password(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    table = postgres.table("n int")
    postgres.execute(
        "do $$ begin if not exists (select from pg_roles where rolname = 'reader') then "
        f"create role reader login password '{PASSWORD}'; end if; end $$",
        f"grant select on {table} to reader",
    )
    dead = f"postgresql://headgate:{PASSWORD}@127.0.0.1:1/postgres"
    wrong = postgres.uri.replace(PASSWORD, PASSWORD + "x")
    cases = {
        postgres.uri_of("reader"): r"permission denied .*SQLSTATE 42501\); grant the user this right",
        dead: "Connection refused.*check the uri= and that a server runs there",
        wrong: "password authentication failed.*check user name and password",
        postgres.uri.removesuffix("/postgres") + "/none": 'database "none" does not exist.*name of the database',
    }
    with caplog.at_level(logging.DEBUG):
        for uri, words in cases.items():
            with pytest.raises(hg.SinkError, match=words) as caught:
                write(postgres, table, [{"n": 1}], uri)
            assert PASSWORD not in f"{caught.value!r} {hg.sinks.adbc('postgresql', uri, table)!r}"
        with pytest.raises(hg.SourceError, match="Connection refused") as failed:
            hg.sources.adbc("postgresql", dead, table, by="n")
    assert PASSWORD not in str(failed.value) + caplog.text


def test_a_source_without_the_right_to_read(postgres: Postgres, tmp_path: Path) -> None:
    """It is refused before a job starts, and a job that loses the right fails, without the password in its error."""
    table = postgres.table("n bigint")
    postgres.execute(f"create role blind login password '{PASSWORD}'", f"insert into {table} values (1), (2)")
    uri = postgres.uri_of("blind")
    with pytest.raises(hg.SourceError, match=r"permission denied .*grant the user this right") as refused:
        hg.sources.adbc("postgresql", uri, table, by="n")
    postgres.execute(f"grant select on {table} to blind")
    source = hg.sources.adbc("postgresql", uri, table, by="n", interval="10 ms")
    env = jobs.environment(checkpoint_dir=tmp_path, restart=hg.restart.fixed(2, delay=0))
    seen = hg.sinks.collect()
    env.from_source(source).sink_to(seen)
    job = env.execute_async()
    jobs.eventually(lambda: seen.to_table().num_rows == 2)
    postgres.execute(f"revoke select on {table} from blind")
    error = jobs.error_of(job)
    assert isinstance(error, hg.SourceError)
    assert re.search(r"permission denied .*grant the user this right", str(error))
    assert job.restarts == 2
    for shown in (refused.value, error):
        assert PASSWORD not in str(shown)


def test_a_column_that_has_no_type_on_the_other_side_is_named(postgres: Postgres) -> None:
    with pytest.raises(hg.SinkError, match="no type for a column of the Arrow type struct; make it JSON text"):
        write(postgres, postgres.table("s text"), [{"s": {"a": 1}}])
    table = postgres.table("id int, u uuid")
    with pytest.raises(hg.SourceError, match="column 'u' is arrow.uuid, .* such as: select cast.u as text. as u"):
        hg.sources.adbc("postgresql", postgres.uri, table, by="id")


@pytest.mark.parametrize(
    "more", ["", "?", "?options=-c%20search_path%3Dapart", "?connect_timeout=3&application_name=a"]
)
def test_parameters_of_the_uri_reach_the_server(postgres: Postgres, more: str) -> None:
    postgres.execute("create schema if not exists apart", "create table if not exists apart.seen (n bigint)")
    table = "seen" if "apart" in more else postgres.table("n bigint")
    write(postgres, table, [{"n": 1}], postgres.uri + more)
    assert postgres.rows(f"select n from {'apart.seen' if 'apart' in more else table}") == [{"n": 1}]


def test_a_statement_has_a_deadline(postgres: Postgres) -> None:
    """The source gives up a query that takes longer than timeout=."""
    query = "select n as id from (select 1 as n, pg_sleep(60)) as slow"
    source = hg.sources.adbc(
        "postgresql", postgres.uri, query, by="id", schema=pa.schema({"id": pa.int64()}), timeout="200 ms", bounded=True
    )
    with pytest.raises(hg.SourceError, match="canceling statement due to statement timeout"):
        environment().from_source(source).collect()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("drop table {}", "relation .* does not exist"),
        ("alter table {} drop column n", "column .n. of relation .* does"),
    ],
)
def test_a_table_that_changes_while_it_is_written(
    postgres: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str, error: str
) -> None:
    """The job restarts as its strategy says, then fails. With the table as before, a resume adds the rows left."""
    table, checkpoints = postgres.table("n bigint, s text"), tmp_path / "checkpoints"

    def start() -> hg.JobHandle:
        env = jobs.environment(
            parallelism=1, checkpoint_dir=checkpoints, checkpoint_interval="20 ms", restart=hg.restart.fixed(2, delay=0)
        )
        source = behind_gate(hg.sources.generate(jobs.numbers, rows=2000, batch_rows=100), tmp_path, before=1000)
        env.from_source(source).sink_to(hg.sinks.adbc("postgresql", postgres.uri, table))
        return env.execute_async("changed", resume="latest-if-any")

    job = start()
    jobs.eventually(lambda: postgres.rows(f"select count(*) as n from {table}") == [{"n": 1000}])
    postgres.execute(f"create table {table}_kept as table {table}", change.format(table))
    open_gate(tmp_path)
    found = jobs.error_of(job)
    assert isinstance(found, hg.SinkError)
    assert table in str(found)
    assert re.search(error, str(found))
    assert len([line for line in caplog.messages if "starts again from checkpoint" in line]) == 2
    postgres.execute(f"drop table if exists {table}", f"alter table {table}_kept rename to {table}")
    assert start().wait(60).restarts == 0
    assert postgres.rows(f"select n from {table} order by n") == jobs.numbers(0, 2000).to_pylist()


def test_times_are_those_of_utc_whatever_the_zone_of_the_server(postgres: Postgres) -> None:
    """At the end of summer time, two hours of UTC are the same hour in Berlin."""
    postgres.execute(
        f"create role berliner superuser login password '{PASSWORD}'",
        "alter role berliner set timezone = 'Europe/Berlin'",
    )
    uri, table = postgres.uri_of("berliner"), postgres.table("at timestamp primary key, day date, zoned timestamptz")
    times = [datetime.datetime(2024, 10, 27, hour, 30) for hour in (0, 1, 23)]
    utc = pa.timestamp("us", "UTC")
    columns = pa.schema({"at": utc, "day": utc, "zoned": pa.timestamp("us")})
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(columns.names, time) for time in times], columns)
    write(postgres, table, [batch], uri, mode="upsert", key="at")
    rows = [{"at": time, "day": time.date(), "zoned": time.replace(tzinfo=datetime.UTC)} for time in times]
    assert postgres.rows(f"select * from {table} order by at") == rows
    query = f"select cast(extract(epoch from at) as bigint) as id, cast(zoned as timestamp) as at, zoned from {table}"
    source = hg.sources.adbc("postgresql", uri, query, by="id", bounded=True)
    found = environment().from_source(source).collect().to_pylist()
    assert [(row["at"], row["zoned"]) for row in found] == [(row["at"], row["zoned"]) for row in rows]
    keys = environment().from_source(hg.sources.iterable([{"zoned": str(time)} for time in times]))
    asked = keys.lookup(hg.lookups.adbc("postgresql", uri, table), on="zoned").collect().to_pylist()
    assert [row["at"] for row in asked] == times
