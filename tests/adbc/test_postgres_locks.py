"""Jobs whose tables another session has locked."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import headgate as hg
from headgate.connectors.adbc import adbc_query, adbc_sink
from headgate.connectors.adbc.database import START_LOCK_WAIT
from tests.postgres_server import PASSWORD, Postgres
from tests.runtime.jobs import eventually

WAITING = "select pid from pg_stat_activity where wait_event_type = 'Lock'"


@contextmanager
def locked(postgres: Postgres, statement: str) -> Iterator[int]:
    """Hold the locks of a statement for a block. Gives the pid of the session."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(f"{postgres.uri}?application_name=holder") as holder, holder.cursor() as cursor:
        cursor.execute("select pg_backend_pid()")
        (pid,) = cursor.fetchone() or (0,)
        cursor.execute(statement)
        yield pid


def write(postgres: Postgres, table: str) -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.adbc("postgresql", postgres.uri, table))
    env.execute()


@pytest.mark.parametrize("which", ["the table", "the table of commits"])
def test_a_job_does_not_wait_long_for_a_lock_to_start(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setattr(adbc_sink, "START_LOCK_WAIT", 0.2)
    table = postgres.table("n int")
    write(postgres, table)
    held = table if which == "the table" else "headgate_commits"
    with locked(postgres, f"lock table {held} in exclusive mode") as pid, pytest.raises(hg.SinkError) as refused:
        write(postgres, table)
    expected = (
        f"adbc: table {table}: a statement has waited 0.2 s for a lock: a lock is held by session {pid} of headgate"
    )
    assert str(refused.value).startswith(f"{expected} with holder (idle in transaction, for ")
    assert "select pg_terminate_backend(pid)" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    write(postgres, table)
    assert postgres.rows(f"select n from {table}") == [{"n": 1}, {"n": 1}]


def test_a_source_does_not_wait_long_for_a_lock_to_start(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adbc_query, "START_LOCK_WAIT", 0.2)
    table = postgres.table("n int")
    words = "lock timeout .*another session holds a lock: let it end"
    with (
        locked(postgres, f"lock table {table} in access exclusive mode"),
        pytest.raises(hg.SourceError, match=words),
    ):
        hg.sources.adbc("postgresql", postgres.uri, table, by="n")


def test_upserts_lock_rows_in_the_order_of_their_keys(postgres: Postgres) -> None:
    """In the order in which they came, two jobs waited for each other's rows, and one failed with a deadlock."""
    table = postgres.table("k int primary key, v text")
    keys = list(range(5000))
    errors: list[BaseException] = []

    def job(keys: list[int]) -> None:
        env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
        rows = hg.sources.iterable([{"k": str(key), "v": str(keys[0])} for key in keys])
        env.from_source(rows).sink_to(hg.sinks.adbc("postgresql", postgres.uri, table, mode="upsert", key="k"))
        try:
            env.execute()
        except hg.HeadgateError as error:
            errors.append(error)

    job(keys[::-1])
    assert [row["k"] for row in postgres.rows(f"select k from {table} order by ctid")] == keys
    threads = [threading.Thread(target=job, args=(given,)) for given in (keys, keys[::-1]) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert postgres.rows(f"select count(*) as n, count(distinct v) as v from {table}") == [{"n": 5000, "v": 1}]


def test_an_interrupt_ends_the_wait_for_a_lock(postgres: Postgres) -> None:
    """ADBC would take the signal, and fail the job with an error of the database."""
    table = postgres.table("n int")

    def interrupt() -> None:
        eventually(lambda: postgres.rows(WAITING))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with locked(postgres, f"lock table {table} in exclusive mode"):
        thread = threading.Thread(target=interrupt)
        thread.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            write(postgres, table)
        assert time.monotonic() - began < START_LOCK_WAIT, "less than the deadline"
        thread.join()
        eventually(lambda: not postgres.rows(WAITING))
