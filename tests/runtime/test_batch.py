"""Batch mode: stage by stage, through nameless files, and nothing of them is left whatever happens."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import headgate as hg
from tests.ending import END, within
from tests.exchange.test_blocking import open_files
from tests.exchange.test_gathering import file_size_limit
from tests.runtime.jobs import NUMBERS, counted, endless, environment, error_of, eventually, files_below, keyed, pids


def batch_environment(folder: Path, processes: bool = False, **options: Any) -> hg.StreamEnvironment:
    return environment(processes, execution_mode="batch", spill_dir=str(folder), **options)


def test_an_operator_starts_when_all_before_it_have_finished(tmp_path: Path) -> None:
    """Each notes when it saw its first and its last row."""
    seen: dict[str, list[float]] = {"one": [], "two": [], "three": []}

    def noting(name: str, stream: hg.DataStream) -> hg.DataStream:
        def note(batch: pa.RecordBatch) -> pa.RecordBatch:
            seen[name].append(time.monotonic())
            return batch

        return stream.map_batches(note, schema=NUMBERS)

    env = batch_environment(tmp_path)
    slow = noting("one", counted(env, 2000)).union(noting("two", counted(env, 500)))
    noting("three", slow.key_by("n").aggregate(final=True, rows=hg.count()).select("n")).sink_to(hg.sinks.null())
    result = env.execute()
    assert result.rows_in == 2500
    assert result.rows_out == 2000
    assert max(seen["one"] + seen["two"]) <= min(seen["three"])


@pytest.mark.parametrize("compression", [False, True])
def test_what_crosses_processes_is_sent_from_files(tmp_path: Path, compression: bool) -> None:
    env = batch_environment(tmp_path, processes=True, batch_shuffle_compression=compression)
    keyed(counted(env, 20_000)).sink_to(hg.sinks.null())
    metrics = env.execute().metrics
    assert 0.9 * metrics["remote_bytes"] < metrics["bytes_sent_by_sendfile"] < metrics["remote_bytes"]
    assert (metrics["remote_bytes"] < 70_000) == compression


def test_more_than_the_network_memory_waits_on_disk(tmp_path: Path) -> None:
    env = batch_environment(tmp_path, network_memory="64 kb", segment_size="4 kb", batch_shuffle_compression=False)
    keyed(counted(env, 100_000)).sink_to(hg.sinks.null())
    assert env.execute().rows_out == 100_000
    assert open_files(tmp_path) == 0
    assert files_below(tmp_path) == []


def test_a_source_without_end_is_refused(tmp_path: Path) -> None:
    env = batch_environment(tmp_path)
    keyed(endless(env)).sink_to(hg.sinks.null())
    with pytest.raises(hg.PlanError, match=r"execution_mode=\"batch\" .* source 'generate' has no end; give it an end"):
        env.execute()


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(hg.ConfigError, match='execution_mode: \'later\' is unknown: it must be "streaming" or "batch"'):
        hg.Config(execution_mode="later")


def test_no_row_is_late(tmp_path: Path) -> None:
    """Rows in the worst order, with no bound, in windows that streaming would have fired long before."""

    def backwards(start: int, n: int) -> pa.RecordBatch:
        times = [(10_000 - number) * 1_000_000 for number in range(start, start + n)]
        return pa.record_batch({"t": pa.array(times, pa.timestamp("us"))})

    def job(env: hg.StreamEnvironment) -> hg.JobResult:
        source = hg.sources.generate(backwards, rows=10_000, batch_rows=100)
        windows = env.from_source(source, watermark=hg.Watermark("t")).key_by().window(hg.tumble("1 min"))
        windows.aggregate(rows=hg.count()).sink_to(hg.sinks.null())
        return env.execute()

    assert job(environment(buffer_timeout=0, message_size=1024, watermark_interval=0)).late_rows > 0
    assert job(batch_environment(tmp_path)).late_rows == 0


@pytest.mark.ends
def test_cancelled_between_and_within_stages(tmp_path: Path) -> None:
    for slow in ("first", "second"):

        def wait(batch: pa.RecordBatch, _slow: str = slow) -> pa.RecordBatch:
            time.sleep(0.05)
            return batch

        env = batch_environment(tmp_path, message_size=1024, segment_size=512)
        stream = counted(env, 20_000)
        stream = stream.map_batches(wait, schema=NUMBERS) if slow == "first" else stream
        stream = stream.key_by("n").aggregate(rows=hg.count()).select("n")
        stream = stream.map_batches(wait, schema=NUMBERS) if slow == "second" else stream
        stream.sink_to(hg.sinks.null())
        job = env.execute_async()
        eventually(lambda: open_files(tmp_path) > 0)  # the first stage has written something
        with within(END):
            job.cancel()
        assert job.status() == "CANCELLED"
        assert open_files(tmp_path) == 0
        assert files_below(tmp_path) == []


@pytest.mark.ends
def test_a_killed_taskmanager_leaves_no_file(tmp_path: Path) -> None:
    def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(0.05)
        return batch

    env = batch_environment(tmp_path, processes=True, message_size=1024, batch_shuffle_compression=False)
    keyed(counted(env, 20_000)).select("n").map_batches(wait, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: job.metrics()["rows_in"] == 20_000, timeout=60)
    with within(END):
        psutil.Process(pids()[1]).kill()
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert "TaskManager 1" in error.message
    assert os.listdir(tmp_path) == []


def test_a_full_disk_ends_the_job_with_what_to_do(tmp_path: Path) -> None:
    env = batch_environment(tmp_path, batch_shuffle_compression=False)
    keyed(counted(env, 100_000)).sink_to(hg.sinks.null())
    with file_size_limit(64 << 10):
        error = error_of(env.execute_async())
    assert type(error) is hg.SpillError
    assert "set the option spill_dir" in error.message
    assert open_files(tmp_path) == 0
    assert files_below(tmp_path) == []


def test_a_folder_that_is_not_there_ends_the_job(tmp_path: Path) -> None:
    env = batch_environment(tmp_path / "nowhere")
    keyed(counted(env)).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.SpillError
    assert "No such file or directory" in error.message
