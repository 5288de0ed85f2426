"""Readers of a file sink's folder, while a job commits, fails and restarts: they see committed rows, each once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import headgate as hg
from tests.runtime.jobs import endless, environment, eventually
from tests.s3_service import S3Service
from tests.spark_session import SharedSpark

#: What readers must have seen before the job stops: so many different sets of rows, after so many failures.
STATES, FAILURES = 6, 2

Read = Callable[[], list[int]]


def with_arrow(uri: str) -> Read:
    filesystem, path = fs.FileSystem.from_uri(uri)
    schema = pa.schema({"n": pa.int64()})

    def read() -> list[int]:
        rows: list[int] = ds.dataset(path, schema, "parquet", filesystem).to_table()["n"].to_pylist()
        return rows

    return read


def watch(out: str, checkpoints: Path, read: Read) -> None:
    """Read all the time while a job writes and fails. Raises AssertionError if a row is there twice, or leaves."""
    batches, failures = 0, 0

    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal batches, failures
        batches += 1
        if batches >= 20 << failures:  # ever later: a slow machine catches up in a rush, and must take checkpoints
            failures += 1
            raise RuntimeError("as planned")
        return batch

    env = environment(checkpoint_dir=checkpoints, checkpoint_interval="50 ms", restart=hg.restart.fixed(10_000, "0 s"))
    stream = endless(env, rate=5_000).set_parallelism(1).rebalance()
    stream.map_batches(failing, schema=stream.schema).sink_to(hg.sinks.parquet(out, mode="append"))
    job = env.execute_async("watched")
    states: list[set[int]] = [set()]

    def has_seen_enough() -> bool:
        rows = read()
        assert len(rows) == len(set(rows)), "a row is there twice"
        assert states[-1] <= set(rows), "a row has left"
        if len(rows) > len(states[-1]):
            states.append(set(rows))
        assert job.status() in ("CREATED", "RUNNING", "RESTARTING")
        return len(states) >= STATES and batches > 20 << (FAILURES - 1)

    try:
        eventually(has_seen_enough, timeout=60)
        job.stop()
    finally:
        job.cancel()
    rows = sorted(read())
    assert rows == list(range(len(rows))), "each row once, and none is missing"
    assert states[-1] <= set(rows)


def test_a_reader_of_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    watch(str(tmp_path / "out"), tmp_path / "checkpoints", with_arrow(str(tmp_path / "out")))


def test_a_reader_of_s3(s3: S3Service, tmp_path: Path) -> None:
    bucket = s3.bucket()
    s3.client.put_object(Bucket=bucket.removeprefix("s3://"), Key="out/_begun")  # so that the folder is there
    watch(f"{bucket}/out", tmp_path / "checkpoints", with_arrow(f"{bucket}/out"))


@pytest.mark.timeout(240)
def test_spark_reads_the_folder(shared_spark: SharedSpark, tmp_path: Path) -> None:
    spark = shared_spark.on("local[1]")
    (tmp_path / "out").mkdir()

    def read() -> list[int]:
        return [n for (n,) in spark.read.schema("n long").parquet(f"file://{tmp_path}/out").collect()]

    watch(str(tmp_path / "out"), tmp_path / "checkpoints", read)
