"""The database sink, into SQLite files: what it writes, what it refuses, and what it leaves."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import check_sink

pytest.importorskip("adbc_driver_sqlite")
from tests.adbc.databases import execute, rows, tables

LOCAL = hg.LocalDeployment(processes=False)


def environment(**options: Any) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(deployment=LOCAL, config=hg.Config(**options))


def sink(path: Path, table: str = "results", **options: Any) -> hg.Sink:
    return hg.sinks.adbc("sqlite", str(path), table, **options)


def write(path: Path, given: list[dict[str, Any]], **options: Any) -> None:
    env = environment()
    env.from_source(hg.sources.iterable(given)).sink_to(sink(path, **options))
    env.execute()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    execute(tmp_path / "a.db", "create table results (n integer primary key, s text)")
    return tmp_path / "a.db"


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, since SQLite waits for the disk after each of thousands of small transactions."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("lines", [20, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_it_keeps_the_contract(memory: Path, lines: int) -> None:
    def make(name: str) -> hg.Sink:
        execute(memory / name, "create table if not exists results (n integer, s text)")
        return sink(memory / name)

    names: set[str] = set()

    def read(name: str) -> list[dict[str, Any]]:
        names.add(name)
        return rows(memory / name, "select n, s from results")

    check_sink(make, read, broken=lambda: sink(memory / "no" / "such.db"), lines=lines)
    left = {table for name in names for table in tables(memory / name)}
    assert left == {"results", "headgate_commits"}, "no staging table is left"


@pytest.mark.parametrize("lines", [3, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_upserts_keep_the_contract(memory: Path, lines: int) -> None:
    def make(name: str) -> hg.Sink:
        execute(memory / name, "create table if not exists results (n integer primary key, s text)")
        return sink(memory / name, mode="upsert", key="n")

    check_sink(make, lambda name: rows(memory / name, "select n, s from results"), lines=lines)


def test_a_job_without_checkpoints_appends_at_its_end(database: Path) -> None:
    write(database, [{"s": "a", "n": 1}, {"s": None, "n": 2}])
    assert rows(database, "select * from results order by n") == [{"n": 1, "s": "a"}, {"n": 2, "s": None}]
    assert tables(database) == {"results", "headgate_commits"}
    assert rows(database, "select * from headgate_commits") == []


def test_a_table_with_rows_is_refused_on_request(database: Path) -> None:
    write(database, [{"n": 1, "s": "first"}], mode="error")
    with pytest.raises(hg.SinkError, match='table results: the table has rows; choose another, .* or mode="append"'):
        write(database, [{"n": 2, "s": "second"}], mode="error")
    assert rows(database, "select * from results") == [{"n": 1, "s": "first"}]


def test_the_last_row_of_a_key_replaces_the_others(database: Path) -> None:
    write(database, [{"n": n % 3, "s": str(n)} for n in range(10)], mode="upsert", key="n")
    write(database, [{"n": 2, "s": "new"}], mode="upsert", key=["n"])
    assert rows(database, "select * from results order by n") == [
        {"n": 0, "s": "9"}, {"n": 1, "s": "7"}, {"n": 2, "s": "new"},
    ]  # fmt: skip


def test_an_upserting_stream_needs_mode_upsert(database: Path) -> None:
    env = environment()
    counts = env.from_source(hg.sources.iterable([{"n": 1}])).key_by("n").aggregate(total=hg.count())
    with pytest.raises(hg.PlanError, match="sink_to"):
        counts.sink_to(sink(database))
    counts.sink_to(sink(database, mode="upsert", key="n"))
    wrong = r"key= is total, but the rows of 'aggregate' replace one another by n: .*key=\['n'\]"
    with pytest.raises(hg.PlanError, match=wrong):
        counts.sink_to(sink(database, mode="upsert", key="total"))
    counts.select(m="n", s="total").sink_to(sink(database, mode="upsert", key="m"))  # renamed: not known


def test_a_row_without_a_key_is_refused(database: Path) -> None:
    with pytest.raises(hg.SinkError, match="a row has no 'n', which is a column of key="):
        write(database, [{"n": 1, "s": "a"}, {"n": None, "s": "b"}], mode="upsert", key="n")
    assert rows(database, "select * from results") == []


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        ([{"n": 1}], {"table": "nothing"}, "no such table: nothing"),
        ([{"n": 1, "x": 2}], {}, "the table has no column 'x'; it has: n, s"),
        ([{"n": 1}], {"mode": "upsert", "key": "m"}, "key= has 'm'; there are: n"),
        ([{"n": 1, "s": "a"}], {"mode": "upsert", "key": "s"}, "ON CONFLICT clause does not match"),
        ([{"n": 1, "headgate_row": 2}], {}, "'headgate_row' is a name of the sink itself"),
        ([{"n": 1, "headgate_newest": 2}], {"mode": "upsert", "key": "n"}, "'headgate_newest' is a name of the sink"),
    ],
)
def test_a_wrong_table_is_refused_before_the_job(database: Path, given: Any, options: Any, error: str) -> None:
    with pytest.raises((hg.SinkError, hg.PlanError), match=error):
        write(database, given, **options)
    assert tables(database) == {"results"}, "the trial is taken back"


def test_an_error_says_once_that_it_is_of_the_database(database: Path) -> None:
    """The name of the operator and the message would both begin with it."""
    with pytest.raises(hg.SinkError, match="^adbc: table nothing: "):
        write(database, [{"n": 1}], table="nothing")
    execute(database, "create table needed (n integer primary key)")
    with pytest.raises(hg.SinkError, match=r"^adbc\[0\]: table needed: a row has no 'n'"):
        write(database, [{"n": None}], table="needed", mode="upsert", key="n")
    env = environment()
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(sink(database, "nothing")).name("trips")
    with pytest.raises(hg.SinkError, match="^trips: adbc: table nothing: "):
        env.execute()


def test_rows_that_break_a_constraint_leave_the_table_as_it_was(database: Path) -> None:
    write(database, [{"n": 1, "s": "first"}])
    with pytest.raises(hg.SinkError, match="UNIQUE constraint failed"):
        write(database, [{"n": 2, "s": "a"}, {"n": 1, "s": "b"}])
    assert rows(database, "select * from results") == [{"n": 1, "s": "first"}]
    assert tables(database) == {"results", "headgate_commits"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("oracle", "x", "t"), "driver='oracle' must be one of 'postgresql', 'sqlite'"),
        (("postgresql", "host=a password=b", "t"), "must begin with postgresql://"),
        (("sqlite", "", "t"), "uri= must be a string"),
        (("sqlite", "x", ""), "table='' must be a name"),
        (("sqlite", "x", "t", {"mode": "upsert"}), 'mode="upsert" needs a key'),
        (("sqlite", "x", "t", {"key": "n"}), 'mode="upsert" needs a key'),
        (("sqlite", "x", "t", {"mode": "overwrite"}), "mode='overwrite' must be one of 'append', 'error', 'upsert'"),
        (("sqlite", "x", "t", {"mode": "error", "key": "n"}), 'mode="upsert" needs a key'),
        (("sqlite", "x", "t", {"timeout": "soon"}), "timeout"),
        (("sqlite", "x", "t", {"timeout": 0}), "timeout= must be above 0"),
    ],
)
def test_impossible_arguments_are_refused(arguments: Any, error: str) -> None:
    options = arguments[-1] if isinstance(arguments[-1], dict) else {}
    with pytest.raises(hg.ConfigError, match=error):
        hg.sinks.adbc(*[value for value in arguments if value is not options], **options)


def test_a_job_with_checkpoints_resumes(database: Path, tmp_path: Path) -> None:
    """The checkpoints have the table's name and the run, and nothing of the URI."""

    def run(**options: Any) -> None:
        env = environment(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="20 ms")
        source = hg.sources.generate(numbers, rows=2000, rate=4000.0, batch_rows=100)
        env.from_source(source).sink_to(sink(database))
        env.execute("resumed", **options)

    run()
    assert [row["n"] for row in rows(database, "select n from results order by n")] == list(range(2000))
    [committed] = rows(database, "select * from headgate_commits")
    stored = [json.loads(path.read_text()) for path in tmp_path.glob("checkpoints/**/_metadata")]
    assert stored
    assert committed["checkpoint"] > 0
    assert all(str(database) not in json.dumps(checkpoint) for checkpoint in stored)
    run(resume="latest")
    assert len(rows(database, "select n from results")) == 2000


def numbers(start: int, count: int) -> pa.RecordBatch:
    range_ = range(start, start + count)
    return pa.record_batch({"n": pa.array(range_, pa.int64()), "s": pa.array(map(str, range_), pa.string())})


def test_a_forged_checkpoint_names_no_other_table(database: Path) -> None:
    made = sink(database)
    schema = pa.schema({"n": pa.int64()})
    with pytest.raises(hg.SinkError, match="the rows up to the checkpoint are in table other; give that table"):
        made.resume("job", schema, {"table": "other", "run": "0" * 12})
    with pytest.raises(hg.SinkError, match="the rows up to the checkpoint"):
        made.resume("job", schema, {"table": "results", "run": "'; drop table results"})
    assert tables(database) == {"results"}
