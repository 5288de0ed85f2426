"""Jobs that are stopped: where they are, to resume from there, or drained, with all that was read in their results."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.connectors.file_sinks.file_writer import FileWriter
from headgate.records.events import CheckpointBarrier
from headgate.runtime.task.barriers import TaskBarriers
from headgate.runtime.taskmanager import state_upload
from headgate.state import checkpoint_storage
from headgate.state.checkpoint_storage import load_checkpoint
from tests.exactly_once import ROWS, committed, environment, expected
from tests.runtime.faults import build_gated, open_gate
from tests.runtime.jobs import NUMBERS, eventually, numbers, pid_of, wait_until_running

PATIENCE = 60.0


def seldom(folder: Path, deployment: hg.LocalDeployment, parallelism: int = 2) -> hg.StreamEnvironment:
    """With checkpoints, of which none is due."""
    config = hg.Config(checkpoint_dir=folder / "checkpoints", checkpoint_interval="1 h")
    return hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)


def wait_for_more(job: hg.JobHandle, rows: int, by: int = 1000) -> None:
    """A job that goes on has read more than the one before."""
    eventually(lambda: job.status() == "RUNNING" and job.metrics()["rows_in"] >= rows + by, PATIENCE)


@pytest.mark.parametrize(("processes", "parallelism"), [(True, 3), (False, 1)])
def test_a_stopped_job_goes_on_with_another_parallelism(tmp_path: Path, processes: bool, parallelism: int) -> None:
    deployment = hg.LocalDeployment(2, processes)
    first = build_gated(environment(tmp_path, deployment), tmp_path).execute_async()
    wait_until_running(first, ROWS // 3)
    last = first.stop(timeout=PATIENCE)
    assert first.status() == "FINISHED"
    assert first.stop() == last
    read = first.wait().rows_in
    seen = committed(tmp_path)
    assert set(seen) < set(expected())
    assert read < ROWS, "no window fired that was not full"
    assert last is not None
    assert load_checkpoint(last).kind == "checkpoint"
    assert not list((tmp_path / "out").glob("_*"))
    open_gate(tmp_path)
    result = build_gated(environment(tmp_path, deployment, parallelism), tmp_path).execute(resume="latest")
    assert committed(tmp_path) == expected()
    assert result.rows_in == ROWS


def test_a_stop_with_a_savepoint_needs_no_checkpoints(tmp_path: Path) -> None:
    env = hg.StreamEnvironment(parallelism=2)
    first = build_gated(env, tmp_path).execute_async()
    wait_until_running(first, ROWS // 3)
    last = first.stop(savepoint=tmp_path / "kept", timeout=PATIENCE)
    assert last is not None
    assert load_checkpoint(last).kind == "savepoint"
    open_gate(tmp_path)
    assert build_gated(hg.StreamEnvironment(parallelism=1), tmp_path).execute(resume=last).rows_in == ROWS
    assert committed(tmp_path) == expected()


def test_a_taskmanager_is_killed_while_the_job_stops(tmp_path: Path) -> None:
    """It starts again, and stops then."""
    deployment = hg.LocalDeployment(2, processes=True)
    job = build_gated(seldom(tmp_path, deployment), tmp_path).execute_async()
    wait_until_running(job, ROWS // 3)
    standing = pid_of(job, 0)
    assert standing is not None
    os.kill(standing, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        stop = thread.submit(job.stop, timeout=PATIENCE)
        eventually(lambda: job._master._checkpoints._coordinator._request is not None, PATIENCE)
        os.kill(standing, signal.SIGKILL)
        assert stop.result(PATIENCE) is not None
    assert (job.status(), job.restarts) == ("FINISHED", 1)
    open_gate(tmp_path)
    assert build_gated(seldom(tmp_path, deployment), tmp_path).execute(resume="latest").rows_in == ROWS
    assert committed(tmp_path) == expected()


def windows(env: hg.StreamEnvironment, folder: Path) -> hg.StreamEnvironment:
    """Counts of an endless stream's rows, in windows of 1000 rows, to `folder`/out."""

    def rows(start: int, n: int) -> pa.RecordBatch:
        number = np.arange(start, start + n)
        times = pa.array(number * 1000, pa.timestamp("us", tz="UTC"))
        return pa.RecordBatch.from_arrays([pa.array(number % 10), times], names=["digit", "at"])

    stream = env.from_source(hg.sources.generate(rows, rate=20_000), watermark=hg.Watermark("at"))
    counts = stream.key_by("digit").window(hg.tumble("1 s")).aggregate(n=hg.count())
    counts.sink_to(hg.sinks.parquet(folder / "out"))
    return env


def counts_of(folder: Path) -> list[tuple[int, int, int]]:
    """Window, digit and number of rows."""
    rows = ds.dataset(folder / "out", format="parquet").to_table().to_pylist()
    return sorted((round(row["window_start"].timestamp()), row["digit"], row["n"]) for row in rows)


@pytest.mark.parametrize("processes", [True, False])
def test_a_drained_job_fires_all_windows(tmp_path: Path, processes: bool) -> None:
    job = windows(seldom(tmp_path, hg.LocalDeployment(2, processes)), tmp_path).execute_async()
    wait_until_running(job, 3000)
    last = job.stop(drain=True, timeout=PATIENCE)
    result = job.wait()
    assert job.status() == "FINISHED"
    assert last is not None
    counts = counts_of(tmp_path)
    assert sum(n for _, _, n in counts) == result.rows_in >= 3000
    assert len({(window, digit) for window, digit, _ in counts}) == len(counts), "each window once"
    again = windows(seldom(tmp_path, hg.LocalDeployment(2, processes), 3), tmp_path).execute_async(resume=last)
    wait_for_more(again, result.rows_in)
    again.stop(drain=True, timeout=PATIENCE)
    assert sum(n for _, _, n in counts_of(tmp_path)) == again.wait().rows_in, "no row twice, and none lost"


def test_stopped_thrice_and_drained_in_the_end(tmp_path: Path) -> None:
    resume, rows = None, 0
    for number, parallelism in enumerate((2, 3, 1, 2)):
        env = seldom(tmp_path, hg.LocalDeployment(2, processes=False), parallelism)
        job = windows(env, tmp_path).execute_async(resume=resume)
        wait_for_more(job, rows)
        resume = job.stop(drain=number == 3, timeout=PATIENCE)
        rows = job.wait().rows_in
    counts = counts_of(tmp_path)
    assert sum(n for _, _, n in counts) == rows > 4000
    assert len({each[:2] for each in counts}) == len(counts), "each window once, and whole"


def test_a_drained_job_without_checkpoints_commits_everything(tmp_path: Path) -> None:
    env = hg.StreamEnvironment(parallelism=2)
    env.from_source(hg.sources.generate(numbers, rows=10**9, rate=10_000)).sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async()
    wait_until_running(job)
    assert job.stop(drain=True, timeout=PATIENCE) is None
    assert job.stop(drain=True) is None
    rows = job.wait().rows_in
    assert sorted(ds.dataset(tmp_path / "out").to_table()["n"].to_pylist())[:10] == list(range(10))
    assert ds.dataset(tmp_path / "out").count_rows() == rows > 0
    assert job.checkpoints() == []


def test_a_drain_survives_a_failure(tmp_path: Path) -> None:
    """It fails when its sources have ended already, and ends without reading on."""
    failed = tmp_path / "failed"

    def fails_at_the_end(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not failed.exists():
            failed.touch()
            raise ValueError("once")
        return batch

    env = seldom(tmp_path, hg.LocalDeployment(2, processes=False))
    rows = env.from_source(hg.sources.generate(numbers, rate=20_000))
    count = rows.key_by("n").aggregate(final=True, times=hg.count())
    checked = count.map_batches(fails_at_the_end, schema=count.schema)
    checked.sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async()
    wait_until_running(job, 1000)
    saved = job.metrics()["rows_in"]
    job.savepoint(tmp_path / "kept", PATIENCE)
    job.stop(drain=True, timeout=PATIENCE)
    assert job.restarts == 1
    assert job.wait().rows_in >= saved
    assert sum(ds.dataset(tmp_path / "out").to_table()["times"].to_pylist()) == job.wait().rows_in


@pytest.mark.parametrize("stops", [True, False])
def test_a_barrier_comes_while_a_sink_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool) -> None:
    """Its task has ended: what it wrote is committed with the checkpoint, or nothing would ever commit it."""
    finishing, injected = threading.Event(), threading.Event()
    finish, inject = FileWriter.finish, TaskBarriers.inject

    def slow_finish(self: FileWriter) -> Any:
        finishing.set()
        injected.wait(PATIENCE)
        return finish(self)

    def inject_and_tell(self: TaskBarriers, barrier: CheckpointBarrier) -> None:
        inject(self, barrier)
        if self._gates:
            injected.set()

    monkeypatch.setattr(FileWriter, "finish", slow_finish)
    monkeypatch.setattr(TaskBarriers, "inject", inject_and_tell)

    def build() -> hg.StreamEnvironment:
        env = seldom(tmp_path, hg.LocalDeployment(1, processes=False), 1)
        rows = env.from_source(hg.sources.generate(numbers, rows=1000))
        rows.key_by("n").aggregate(times=hg.count()).changes().sink_to(hg.sinks.parquet(tmp_path / "out"))
        return env

    job = build().execute_async()
    assert finishing.wait(PATIENCE)
    last = job.stop(timeout=PATIENCE) if stops else job.savepoint(tmp_path / "kept", PATIENCE)
    assert last is not None
    assert list(load_checkpoint(last).files) == [], "nobody takes part"
    job.wait(PATIENCE)
    assert ds.dataset(tmp_path / "out").count_rows() == 1000
    build().execute(resume=last)
    assert ds.dataset(tmp_path / "out").count_rows() == 1000


def test_a_folder_that_is_watched(tmp_path: Path) -> None:
    """The job that it is for: it is stopped, files come, and it goes on with those."""
    (tmp_path / "in").mkdir()

    def put(name: str) -> None:
        (tmp_path / "hidden").write_text(f"{name}\n" * 100)
        (tmp_path / "hidden").rename(tmp_path / "in" / name)

    def watching(parallelism: int, resume: str | None) -> hg.JobHandle:
        env = seldom(tmp_path, hg.LocalDeployment(2, processes=False), parallelism)
        lines = env.from_source(hg.sources.files(tmp_path / "in", watch=True, interval="20 ms"))
        lines.sink_to(hg.sinks.csv(tmp_path / "out"))
        return env.execute_async(resume=resume)

    put("a")
    first = watching(2, None)
    wait_until_running(first, 100)
    first.stop(timeout=PATIENCE)
    put("b")
    second = watching(3, "latest")
    wait_for_more(second, 100, by=100)
    second.stop(drain=True, timeout=PATIENCE)
    seen = ds.dataset(tmp_path / "out", format="csv").to_table()["value"].to_pylist()
    assert sorted(seen) == ["a"] * 100 + ["b"] * 100


@pytest.mark.parametrize("drain", [True, False])
def test_an_iterator_that_blocks(tmp_path: Path, drain: bool) -> None:
    on = threading.Event()

    def items(_subtask: int, _subtasks: int) -> Iterator[Any]:
        yield [{"n": 1}]
        on.wait(PATIENCE)

    env = seldom(tmp_path, hg.LocalDeployment(1, processes=False), 1)
    env.from_source(hg.sources.iterable(items, schema=NUMBERS, bounded=False)).sink_to(
        hg.sinks.parquet(tmp_path / "out")
    )
    job = env.execute_async()
    wait_until_running(job)
    job.stop(drain=drain, timeout=PATIENCE)
    on.set()
    assert job.status() == "FINISHED"
    assert ds.dataset(tmp_path / "out").count_rows() == 1


def test_a_drained_job_that_cannot_get_past_a_row_says_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(row: dict[str, int]) -> dict[str, int]:
        return {"n": 10 // row["n"]}

    env = seldom(tmp_path, hg.LocalDeployment(1, processes=False), 1)
    rows = env.from_source(hg.sources.iterable([[{"n": 5}], [{"n": 0}]], schema=NUMBERS))
    rows.map(refuses, schema=NUMBERS).sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async("job")
    eventually(lambda: "failed 3 times in a row" in caplog.text, PATIENCE)
    assert "restart=hg.restart.fixed(3, '1 s')" in caplog.text
    job.stop(drain=True, timeout=PATIENCE)
    assert "is drained from the beginning: rows that it had read after that are not in its result" in caplog.text


def test_a_socket(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = seldom(tmp_path, hg.LocalDeployment(1, processes=False), 2)
        lines = env.from_source(hg.sources.socket_lines("127.0.0.1", server.getsockname()[1]))
        lines.sink_to(hg.sinks.csv(tmp_path / "out"))
        job = env.execute_async()
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"one\ntwo\n")
            wait_until_running(job, 2)
            job.stop(drain=True, timeout=PATIENCE)
    assert ds.dataset(tmp_path / "out", format="csv").count_rows() == 2


def test_a_checkpoint_that_cannot_be_had_lets_the_job_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = checkpoint_storage.write_part

    def write_part(folder: str, *arguments: Any) -> Any:
        if "kept" in folder:
            raise hg.CheckpointError("no space left")
        return write(folder, *arguments)

    monkeypatch.setattr(state_upload, "write_part", write_part)
    job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    wait_until_running(job)
    with pytest.raises(hg.CheckpointError, match="the stop of job 'job' failed: .*no space left"):
        job.stop(savepoint=tmp_path / "kept", timeout=PATIENCE)
    open_gate(tmp_path)
    assert job.wait(PATIENCE).rows_in == ROWS
    assert committed(tmp_path) == expected()
    assert job.stop(savepoint=tmp_path / "kept") is not None, "it has ended"


def test_a_drained_jobs_savepoint_has_its_end(tmp_path: Path) -> None:
    env = hg.StreamEnvironment(parallelism=2)
    env.from_source(hg.sources.generate(numbers, rows=10**9, rate=10_000)).sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async()
    wait_until_running(job)
    last = job.stop(drain=True, savepoint=tmp_path / "kept", timeout=PATIENCE)
    assert last is not None
    assert list(load_checkpoint(last).files) == []
    assert ds.dataset(tmp_path / "out").count_rows() == job.wait().rows_in


def test_what_is_refused(tmp_path: Path) -> None:
    hold = threading.Event()

    def stands(batch: pa.RecordBatch) -> pa.RecordBatch:
        hold.wait(PATIENCE)
        return batch

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(hg.sources.generate(numbers, rows=10**9, rate=10_000))
    stream.map_batches(stands, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    with pytest.raises(hg.CheckpointError, match=r"give savepoint=, or set the option checkpoint_dir"):
        job.stop()
    with pytest.raises(TimeoutError, match="job 'job' has not ended 0.01 s after it was asked to stop"):
        job.stop(drain=True, timeout=0.01)
    with pytest.raises(hg.ConfigError, match="is being stopped, with drain=True and savepoint=None; wait for its end"):
        job.stop(savepoint=tmp_path / "kept")
    with ThreadPoolExecutor(1) as thread:
        stop = thread.submit(job.stop, drain=True, timeout=PATIENCE)
        cancel = threading.Thread(target=job.cancel)
        cancel.start()
        eventually(lambda: job._master._cancelled.is_set(), PATIENCE)
        hold.set()
        cancel.join()
        with pytest.raises(hg.JobCancelled):
            stop.result(PATIENCE)
    with pytest.raises(hg.JobCancelled):
        job.stop(drain=True)


def test_a_function_of_the_job_stops_it() -> None:
    handle: list[hg.JobHandle] = []

    def enough(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        if handle:
            assert handle[0].stop(drain=True) is None

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    env.from_source(hg.sources.generate(numbers, rate=10_000)).sink_to(hg.sinks.for_each_batch(enough))
    handle.append(env.execute_async())
    assert handle[0].wait(PATIENCE).rows_in > 0
