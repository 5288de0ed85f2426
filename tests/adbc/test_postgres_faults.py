"""Jobs that write into PostgreSQL while the server restarts and their processes are killed: each row is there once."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.adbc import staging
from tests.postgres_server import Postgres, postgres_or_skip
from tests.runtime.jobs import eventually

ROWS, RATE = 6000, 1500.0
PROGRAM = """
import sys
from tests.adbc.test_postgres_faults import run
run(*sys.argv[1:])
"""
#: What a schedule of faults chooses from.
FAULTS = ("kill the driver", "kill a TaskManager", "crash the server", "stop the server", "cut connections")


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server for one test, which crashes it."""
    server = postgres_or_skip()
    yield server
    server.close()


def run(uri: str, table: str, mode: str, folder: str) -> None:
    """The program whose processes are killed."""
    config = hg.Config(
        checkpoint_dir=f"{folder}/checkpoints", checkpoint_interval="50 ms", restart=hg.restart.fixed(1000, "50 ms")
    )
    env = hg.StreamEnvironment(parallelism=2, config=config, deployment=hg.LocalDeployment(processes=True))
    rows = env.from_source(hg.sources.generate(numbers, rows=ROWS, rate=RATE, batch_rows=50))
    key: Any = {"mode": "upsert", "key": "n"} if mode == "upsert" else {}
    rows.rebalance().sink_to(hg.sinks.adbc("postgresql", uri, table, **key))
    env.execute("faults", resume="latest-if-any")


def numbers(start: int, count: int) -> pa.RecordBatch:
    range_ = range(start, start + count)
    return pa.record_batch({"n": pa.array(range_, pa.int64()), "s": pa.array(map(str, range_), pa.string())})


@contextmanager
def driver(server: Postgres, table: str, mode: str, folder: Path) -> Iterator[psutil.Popen]:
    """Run the program for a block. Its processes are gone after the block."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HEADGATE_WEB": "off"}
    command = [sys.executable, "-c", PROGRAM, server.uri, table, mode, str(folder)]
    with (folder / "log").open("a") as log:
        process = psutil.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        yield process
    finally:
        kill(process)


def kill(process: psutil.Popen) -> None:
    """Kill a driver. Its TaskManagers end by themselves."""
    children = []
    with suppress(psutil.NoSuchProcess):
        children = process.children(recursive=True)
        process.kill()
    process.wait()
    for child in psutil.wait_procs(children, 30)[1]:
        child.kill()


def count(server: Postgres, table: str) -> int:
    from adbc_driver_postgresql import dbapi

    try:
        return int(server.rows(f"select count(*) as n from {table}")[0]["n"])
    except dbapi.Error:  # it starts
        return -1


def assert_each_row_once(server: Postgres, table: str) -> None:
    found = server.rows(f"select n, s from {table} order by n")
    assert found == numbers(0, ROWS).to_pylist()
    assert server.rows("select tablename from pg_tables where tablename like 'headgate_stage%'") == []


def survive(server: Postgres, folder: Path, seed: int) -> None:
    """Run a job through six faults at random moments, and check the table."""
    chance = random.Random(seed)
    table, mode = server.table("n int primary key, s text"), chance.choice(["append", "upsert"])
    faults = [chance.choice(FAULTS) for _ in range(6)]
    while faults:
        with driver(server, table, mode, folder) as process:
            while faults and process.poll() is None:
                before = count(server, table)
                eventually(lambda: count(server, table) > before or process.poll() is not None, timeout=60)  # noqa: B023
                time.sleep(chance.uniform(0, 0.1))  # not a wait: the moment of the fault
                if (fault := faults.pop()) == "kill the driver":
                    break
                happens(fault, server, process, chance)
            if process.poll() is not None:
                break
            if not faults and fault != "kill the driver":
                assert process.wait(60) == 0, (folder / "log").read_text()[-3000:]
    with driver(server, table, mode, folder) as process:  # after the end of the job, a resume changes nothing
        assert process.wait(60) == 0, (folder / "log").read_text()[-3000:]
    assert_each_row_once(server, table)


def happens(fault: str, server: Postgres, process: psutil.Popen, chance: random.Random) -> None:
    if fault == "kill a TaskManager":
        with suppress(psutil.NoSuchProcess, IndexError):
            chance.choice(process.children(recursive=True)).kill()
    elif fault == "cut connections":
        server.rows("select count(pg_terminate_backend(pid)) from pg_stat_activity where pid != pg_backend_pid()")
    else:
        server.crash() if fault == "crash the server" else server.stop()
        server.start()


@pytest.mark.soak
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2, *range(100, 110)])
def test_no_fault_costs_or_repeats_a_row(server: Postgres, tmp_path: Path, seed: int) -> None:
    survive(server, tmp_path, seed)


@contextmanager
def held_commit(server: Postgres, table: str) -> Iterator[None]:
    """Hold a lock, so that a commit stops between the claim and the rows, within its transaction."""
    from adbc_driver_postgresql import dbapi

    holder = dbapi.connect(server.uri)
    with holder.cursor() as cursor:
        cursor.execute(f"lock table {table} in exclusive mode")
    waits = "select pid from pg_stat_activity where wait_event_type = 'Lock' and query like 'insert into%'"
    try:
        eventually(lambda: server.rows(waits), timeout=60)
        yield
    finally:
        with suppress(dbapi.Error):  # the server may be another one by now
            holder.close()


@pytest.mark.turns(3)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", ["crash the server", "stop the server", "kill the driver"])
def test_a_fault_within_a_commit_costs_and_repeats_no_row(server: Postgres, tmp_path: Path, fault: str) -> None:
    table = server.table("n int, s text")
    with driver(server, table, "append", tmp_path) as process:
        eventually(lambda: count(server, table) > 0, timeout=60)
        with held_commit(server, table):
            if fault == "kill the driver":
                kill(process)
            else:
                server.crash() if fault == "crash the server" else server.stop()
                server.start()
        if fault != "kill the driver":
            assert process.wait(60) == 0, (tmp_path / "log").read_text()[-3000:]
    if fault == "kill the driver":
        with driver(server, table, "append", tmp_path) as process:
            assert process.wait(60) == 0, (tmp_path / "log").read_text()[-3000:]
    assert_each_row_once(server, table)


@contextmanager
def asleep(server: Postgres) -> Iterator[None]:
    """All processes of the server are stopped. The main one is the first, so that no other starts."""
    main = psutil.Process(server.pid)
    main.suspend()
    stopped = [main]
    try:
        stopped += main.children()
        for child in stopped[1:]:
            with suppress(psutil.NoSuchProcess):  # the session whose client has left
                child.suspend()
        yield
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()


@pytest.mark.timeout(240)
def test_a_cancel_ends_the_wait_for_a_server_that_does_not_answer(server: Postgres) -> None:
    """All processes of the server are stopped, as if its machine slept."""
    table = server.table("n int, s text")
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(processes=False))
    source = hg.sources.generate(numbers, rows=10**9, batch_rows=100_000)
    env.from_source(source).sink_to(hg.sinks.adbc("postgresql", server.uri, table))
    job = env.execute_async()
    stage = "select 1 from pg_tables where tablename like 'headgate_stage%'"
    eventually(lambda: server.rows(stage), timeout=60)
    with asleep(server):
        began = time.monotonic()
        with suppress(hg.HeadgateError):
            job.cancel()
            job.wait()
        took = time.monotonic() - began
    assert took < 45
    eventually(lambda: not any(thread.name.startswith("headgate-database") for thread in threading.enumerate()))


@pytest.mark.timeout(240)
def test_subtasks_wait_while_the_driver_is_behind(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next checkpoint does not grow while the driver commits the one before it. Then the job goes on."""
    monkeypatch.setattr(staging, "MOST_STAGED", 1 << 17)
    monkeypatch.setattr(staging, "_BYTES_HELD", 1 << 14)
    table = server.table("n int, s text")
    config = hg.Config(checkpoint_dir=tmp_path, checkpoint_interval="50 ms")
    env = hg.StreamEnvironment(parallelism=1, config=config, deployment=hg.LocalDeployment(processes=False))
    # Rows must be left when the lock is held. A slow machine takes it late.
    rows = env.from_source(hg.sources.generate(numbers, rows=80_000, rate=20_000, batch_time="5 ms"))
    rows.sink_to(hg.sinks.adbc("postgresql", server.uri, table))
    job = env.execute_async()
    eventually(lambda: count(server, table) > 0, timeout=60)
    with held_commit(server, table):
        eventually(lambda: server.rows("select 1 from pg_stat_activity where query like '%for share nowait'"))
        eventually(lambda: sum(task["hard_backpressured_s"] for task in job.metrics()["tasks"].values()) > 0.5)
        stages = server.rows("select tablename as name from pg_tables where tablename like 'headgate_stage%'")
        newest = max((stage["name"] for stage in stages), key=lambda name: int(name.rpartition("_")[2]))
        assert server.rows(f"select count(*) as n from {newest}")[0]["n"] < 15_000, "about 128 kB"
    assert job.wait(60).restarts == 0
    assert server.rows(f"select count(*) as rows, count(distinct n) as numbers from {table}") == [
        {"rows": 80_000, "numbers": 80_000}
    ]
