"""Transactions in SQLite files wait for each other, and those that only read a query lock nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate as hg

pytest.importorskip("adbc_driver_sqlite")
from headgate.connectors.adbc.database import Database, DatabaseConnection
from tests.adbc.databases import execute, rows
from tests.runtime.jobs import endless, environment, eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    execute(tmp_path / "a.db", "create table a (n integer)", "create table b (n integer)")
    return tmp_path / "a.db"


@pytest.fixture
def connect(path: Path) -> Any:
    opened: list[DatabaseConnection] = []

    def connect(timeout: float = 30.0, **options: Any) -> DatabaseConnection:
        opened.append(DatabaseConnection(Database("sqlite", str(path), timeout), **options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def test_a_transaction_that_reads_first_waits_for_another(connect: Callable[..., DatabaseConnection]) -> None:
    """SQLite failed it at its first write, without a wait: its view of the file may be old."""
    first, second = connect(), connect()
    assert first.execute("select n from a") == []
    begun = time.monotonic()

    def go_on() -> None:
        time.sleep(0.3)  # not a wait: the time for which the lock is held
        first.execute("insert into a values (1)")
        first.commit()

    thread = threading.Thread(target=go_on)
    thread.start()
    assert second.execute("select n from a") == [(1,)]
    assert time.monotonic() - begun >= 0.3
    second.execute("insert into a values (2)")
    second.commit()
    thread.join()
    assert first.execute("select n from a order by n") == [(1,), (2,)]


def test_a_connection_without_a_statement_locks_nothing(connect: Callable[..., DatabaseConnection]) -> None:
    idle, other = connect(), connect(0.1)
    for end in (idle.commit, idle.roll_back):
        other.execute("insert into a values (1)")
        other.commit()
        idle.execute("select n from a")
        with pytest.raises(Exception, match="database is locked"):
            other.execute("select n from a")
        other.roll_back()
        end()
    reader = connect(autocommit=True)
    assert idle.execute("select n from a") == reader.execute("select n from a") == [(1,), (1,)]


def test_a_query_is_read_while_another_program_writes(path: Path, connect: Callable[..., DatabaseConnection]) -> None:
    execute(path, "insert into a values (1), (2)")
    connect().execute("insert into b values (1)")
    env = environment(parallelism=1)
    source = hg.sources.adbc("sqlite", str(path), "a", by="n", bounded=True, timeout="1 s")
    assert env.from_source(source).collect().num_rows == 2


def test_jobs_start_while_another_one_commits_often(
    path: Path, tmp_path: Path, connect: Callable[..., DatabaseConnection]
) -> None:
    env = environment(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="20 ms")
    endless(env, rate=1000).sink_to(hg.sinks.adbc("sqlite", str(path), "a"))
    job = env.execute_async("long")
    try:
        reader = connect(autocommit=True)
        eventually(lambda: reader.execute("select n from a limit 1"))
        for n in range(10):
            short = environment(parallelism=1)
            short.from_source(hg.sources.iterable([{"n": n}])).sink_to(hg.sinks.adbc("sqlite", str(path), "b"))
            short.execute("short")
        assert job.status() == "RUNNING"
    finally:
        job.cancel()
    assert rows(path, "select n from b order by n") == [{"n": n} for n in range(10)]
