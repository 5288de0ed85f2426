from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from headgate.runtime.master import attempt
from tests.ending import END, within
from tests.spark.conftest import MASTERS, STANDALONE

pytestmark = pytest.mark.timeout(300)

KEYS = 10
Start = Callable[..., hg.JobHandle]
ROWS = 100_000
#: For executors that register late on a busy machine.
PATIENT = hg.Config(slots_timeout="90 s")


def numbers() -> Callable[[int, int], pa.RecordBatch]:
    """Return a function that makes row i with key i mod KEYS.

    It is nested, since workers cannot import this module, and so get it by value.
    """

    def rows(start: int, count: int) -> pa.RecordBatch:
        value = np.arange(start, start + count)
        return pa.RecordBatch.from_pydict({"key": value % 10, "value": value})

    return rows


@pytest.fixture(autouse=True)
def patience_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for Spark's message about a loss: it comes late on a busy machine, and the tests look at it."""
    monkeypatch.setattr(attempt, "EXIT_WORD", 10.0)


@pytest.fixture
def endless(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., hg.JobHandle]]:
    """Return a function that starts a job of two TaskManagers. Each leaves a file in `tmp_path`, named by its pid."""
    jobs: list[hg.JobHandle] = []

    def note(folder: str, _batch: pa.RecordBatch, _info: object) -> None:
        import os

        open(f"{folder}/{os.getpid()}", "w").close()

    def start(function: Callable[[pa.RecordBatch], Any] | None = None) -> hg.JobHandle:
        env = hg.StreamEnvironment(spark, parallelism=2, config=PATIENT)
        stream = env.from_source(hg.sources.generate(numbers(), rate=10_000))
        if function is not None:
            stream = stream.map_batches(function, schema=stream.schema)
        totals = stream.key_by("key").aggregate(total=hg.sum("value"))
        totals.sink_to(hg.sinks.for_each_batch(partial(note, str(tmp_path))))
        jobs.append(env.execute_async("endless"))
        return jobs[-1]

    yield start
    for job in jobs:
        job.cancel()


def processes(folder: Path) -> list[psutil.Process]:
    """Wait until two processes have left their files, and return the processes."""
    deadline = time.monotonic() + 60
    while len(pids := [int(entry.name) for entry in folder.iterdir()]) < 2:
        assert time.monotonic() < deadline, f"only {pids} have started"
        time.sleep(0.02)
    return [psutil.Process(pid) for pid in pids]


def assert_gone(workers: list[psutil.Process]) -> None:
    for worker in workers:
        # "dead" is the last moment of a process: the kernel is removing it.
        assert not worker.is_running() or worker.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


@pytest.mark.parametrize("master", [*MASTERS, "local[3]"], indirect=True)
def test_a_keyed_sum_is_exact(spark: SparkSession) -> None:
    env = hg.StreamEnvironment(spark, parallelism=2, config=hg.Config(segment_size=512, slots_timeout="90 s"))
    stream = env.from_source(hg.sources.generate(numbers(), rows=ROWS))
    totals = stream.key_by("key").aggregate(final=True, count=hg.count(), total=hg.sum("value")).collect()
    values = np.arange(ROWS)
    expected = [{"key": k, "count": ROWS // KEYS, "total": int(values[values % KEYS == k].sum())} for k in range(KEYS)]
    assert totals.sort_by("key").to_pylist() == expected


def test_workers_are_forked_from_a_process_with_loaded_modules(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"main": [str(sys.modules["__main__"].__file__)] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(look, "main string").collect()
    assert row.main.endswith("headgate/spark/daemon.py")


def test_workers_draw_different_random_numbers(spark: SparkSession) -> None:
    def draw(_batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"drawn": [np.random.random()]})

    env = hg.StreamEnvironment(spark, parallelism=2, config=PATIENT)
    rows = env.from_source(hg.sources.iterable([pa.record_batch({"n": [n]}) for n in range(2)]))
    drawn = rows.map_batches(draw, schema=pa.schema([("drawn", pa.float64())])).collect()["drawn"].to_pylist()
    assert len(set(drawn)) == 2


def test_a_job_leaves_no_threads_or_sockets_in_its_workers(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import threading

        for _ in batches:
            pass
        threads = [thread.name for thread in threading.enumerate()]
        yield pa.RecordBatch.from_pydict({"pid": [os.getpid()] * len(threads), "thread": threads})

    env = hg.StreamEnvironment(spark, parallelism=2, config=PATIENT)
    stream = env.from_source(hg.sources.generate(numbers(), rows=ROWS))
    stream = stream.map_batches(whereabouts(), schema=pa.schema({"pid": pa.int64()}))
    pids = stream.collect()["pid"].unique().to_pylist()
    threads: dict[int, set[str]] = {}
    for _ in range(10):  # Spark may also have other idle workers, and uses them in turn
        rows = spark.range(0, 2, 1, 2).mapInArrow(look, "pid long, thread string", barrier=True).collect()
        for row in rows:
            threads.setdefault(row.pid, set()).add(row.thread)
        if threads.keys() >= set(pids):
            break
    assert [threads[pid] for pid in pids] == [{"MainThread"}] * len(pids)
    for pid in pids:
        ours = [c for c in psutil.Process(pid).net_connections() if c.raddr == () or c.raddr.port != 0]
        assert len(ours) <= 1, f"beside Spark's own socket: {ours}"


def whereabouts() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def here(batch: pa.RecordBatch) -> pa.RecordBatch:
        import os

        return pa.RecordBatch.from_pydict({"pid": [os.getpid()] * batch.num_rows})

    return here


@pytest.mark.ends
def test_a_cancelled_job_ends(endless: Start, tmp_path: Path) -> None:
    job = endless()
    processes(tmp_path)
    with within(END):
        job.cancel()
    assert job.status() == "CANCELLED"
    with pytest.raises(hg.JobCancelled):
        job.wait(0)


@pytest.mark.ends
def test_a_killed_taskmanager_is_named(endless: Start, tmp_path: Path) -> None:
    job = endless()
    workers = processes(tmp_path)
    why = rf"TaskManager \d \(process {workers[0].pid} on 127\.0\.0\.1\) was lost: its Python worker process died"
    with within(END):
        workers[0].kill()
        with pytest.raises(hg.TaskManagerLost, match=why):
            job.wait(60)
    assert_gone(workers[:1])


@pytest.mark.ends
@pytest.mark.soak  # test_restarts.py also kills an executor, which Spark replaces with a new JVM
@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", STANDALONE], indirect=True)
def test_a_killed_executor_is_named(endless: Start, tmp_path: Path) -> None:
    job = endless()
    workers = processes(tmp_path)
    executor = workers[0].parent().parent()  # a worker's parent is PySpark's daemon
    assert executor is not None
    why = rf"TaskManager \d \(process {workers[0].pid} on 127\.0\.0\.1\) was lost: its Spark executor was lost"
    with within(END):
        os.kill(executor.pid, signal.SIGKILL)
        with pytest.raises(hg.TaskManagerLost, match=why):
            job.wait(60)
    assert_gone(workers[:1])


def test_a_function_that_raises_is_named(endless: Start) -> None:
    def picky(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("not these")

    job = endless(picky)
    with pytest.raises(hg.UserFunctionError, match=r"map_batches\[\d\]: .*picky raised ValueError: not these"):
        job.wait(60)


@pytest.mark.ends
@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_the_process_of_a_function_that_hangs_is_killed(endless: Start, tmp_path: Path) -> None:
    def hangs(folder: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        import os
        import threading

        open(f"{folder}/{os.getpid()}", "w").close()
        threading.Event().wait()
        return batch

    job = endless(partial(hangs, str(tmp_path)))
    workers = processes(tmp_path)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled, match=r"function of map_batches\[\d\].* did not return .* process was killed"):
        job.wait(0)
    assert_gone(workers)


@pytest.mark.ends
@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_a_process_whose_function_holds_the_gil_is_given_up(endless: Start, tmp_path: Path) -> None:
    """Its function holds the interpreter's lock. Spark kills the process later, and the job does not wait for it."""

    def holds(folder: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        import ctypes
        import os

        open(f"{folder}/{os.getpid()}", "w").close()
        ctypes.PyDLL(None).sleep(600)
        return batch

    job = endless(partial(holds, str(tmp_path)))
    workers = processes(tmp_path)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled, match=rf"TaskManager \d \(process {workers[0].pid} .* and was killed\)"):
        job.wait(0)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []


@pytest.mark.parametrize("master", ["local[2]"], indirect=True)
def test_rows_come_from_and_go_to_dataframes(spark: SparkSession) -> None:
    names = spark.createDataFrame([(0, "none"), (7, "seven")], "key long, name string")
    env = hg.StreamEnvironment(spark, parallelism=2, config=PATIENT)
    stream = env.from_source(hg.sources.generate(numbers(), rows=ROWS)).lookup(names, on="key")
    counts = stream.key_by("name").aggregate(final=True, rows=hg.count()).to_dataframe()
    expected = {"none": ROWS // KEYS, "seven": ROWS // KEYS, None: ROWS - 2 * (ROWS // KEYS)}
    assert {row["name"]: row["rows"] for row in counts.collect()} == expected
    assert counts.where("rows > 10000").count() == 1
