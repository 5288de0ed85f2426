"""File sinks on S3: files are uploads, which a commit completes. Nothing is seen before, and nothing stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import headgate as hg
from headgate.s3_uploads import abort_upload, begin_upload, complete_upload, open_uploads, upload_part
from headgate.testing import check_sink
from tests.page_blocks import read, run
from tests.s3_service import S3Service

ROOT = Path(__file__).resolve().parents[2]
#: A program that is killed when its first rows are in an upload.
PROGRAM = """
import os, signal, sys; sys.path[:0] = [{root!r}, {root!r} + "/src"]
import headgate as hg
from headgate.connectors.file_sinks import file_writer
write = file_writer.FileWriter.write

def then_killed(writer, batch):
    write(writer, batch)
    writer.flush(1)
    os.kill(os.getpid(), signal.SIGKILL)

file_writer.FileWriter.write = then_killed
deployment = hg.LocalDeployment(1, processes=False)
env = hg.StreamEnvironment(parallelism=1, deployment=deployment, config=hg.Config(**{options!r}))
env.from_source(hg.sources.iterable([[{{"city": "Bonn", "km": 1}}]])).sink_to(hg.sinks.parquet({out!r}))
env.execute("job")
"""
#: The rows of the contract.
ITS_ROWS = pa.table({"n": list(range(30)), "s": [str(n) for n in range(30)]})
ROWS = [{"city": "Rome", "km": 7}, {"city": "Oslo", "km": 3}, {"city": "Rome", "km": 5}]


def rows_in(uri: str) -> list[Any]:
    """The rows that readers see."""
    filesystem, path = fs.FileSystem.from_uri(uri)
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        return []
    table = ds.dataset(path, filesystem=filesystem, format="parquet", partitioning="hive").to_table()
    rows: list[Any] = table.to_pylist()
    return rows


def uploads(s3: S3Service, bucket: str) -> list[str]:
    """The keys of uploads that were neither completed nor aborted."""
    answer = s3.client.list_multipart_uploads(Bucket=bucket.removeprefix("s3://"))
    return [each["Key"] for each in answer.get("Uploads", [])]


def write(sink: hg.Sink, rows: Any = ROWS, **options: Any) -> None:
    deployment = hg.LocalDeployment(2, processes=False)
    env = hg.StreamEnvironment(parallelism=2, deployment=deployment, config=hg.Config(**options))
    env.from_source(hg.sources.iterable([[row] for row in rows] if isinstance(rows, list) else rows)).sink_to(sink)
    env.execute("job")


def in_order(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row["city"], row["km"]))


def test_the_code_of_the_page_runs(s3: S3Service, tmp_path: Path) -> None:
    s3.client.create_bucket(Bucket="shop", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    run(read((ROOT / "docs" / "how-to" / "write-files-to-s3.md").read_text()), tmp_path)


@pytest.mark.parametrize("partition_by", [[], "city"])
def test_rows_are_there_once_and_no_upload_stays(s3: S3Service, partition_by: Any) -> None:
    bucket = s3.bucket()
    write(hg.sinks.parquet(f"{bucket}/out", partition_by=partition_by), checkpoint_dir=f"{bucket}/checkpoints")
    assert in_order(rows_in(f"{bucket}/out")) == in_order(ROWS)
    assert uploads(s3, bucket) == []
    keys = [key for key in s3.keys(f"{bucket}/out/") if key.endswith(".parquet")]
    assert all(not part.startswith("_") for key in keys for part in key.split("/"))


def test_csv_and_json(s3: S3Service) -> None:
    bucket = s3.bucket()
    write(hg.sinks.csv(f"{bucket}/csv"))
    write(hg.sinks.json(f"{bucket}/json"))
    texts = []
    for folder in ("csv", "json"):
        filesystem, path = fs.FileSystem.from_uri(f"{bucket}/{folder}")
        files = [
            entry.path for entry in filesystem.get_file_info(fs.FileSelector(path)) if entry.type == fs.FileType.File
        ]
        texts.append([filesystem.open_input_stream(file).read().decode().splitlines() for file in files])
    assert sorted(line for lines in texts[0] for line in lines[1:]) == ['"Oslo",3', '"Rome",5', '"Rome",7']
    assert in_order(json.loads(line) for lines in texts[1] for line in lines) == in_order(ROWS)


def test_sources_read_what_was_written(s3: S3Service) -> None:
    bucket = s3.bucket()
    write(hg.sinks.parquet(f"{bucket}/out"))
    write(hg.sinks.csv(f"{bucket}/texts"))
    for source in (hg.sources.parquet(f"{bucket}/out/*.parquet"), hg.sources.csv(f"{bucket}/texts")):
        env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(1, processes=False))
        assert in_order(env.from_source(source).collect().to_pylist()) == in_order(ROWS)


def test_an_upload_that_another_program_aborts_meanwhile_shows_nothing(s3: S3Service) -> None:
    """The program was paused after it had listed the parts. Where S3 answers 404, moto answers 500."""
    bucket = s3.bucket().removeprefix("s3://")
    path = f"{bucket}/out/file"
    upload = begin_upload(path, "eu-west-1")
    upload_part(path, "eu-west-1", upload, 1, b"rows")

    def aborted(environ: dict[str, Any], passed_on: Callable[[], Iterable[bytes]], start: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            return passed_on()
        abort_upload(path, "eu-west-1", upload)
        start("404 Not Found", [("Content-Type", "application/xml")])
        return [b"<Error><Code>NoSuchUpload</Code><Message>it was aborted</Message></Error>"]

    with s3.failing(aborted):
        assert not complete_upload(path, "eu-west-1", upload)
    assert s3.keys(f"s3://{bucket}/") == []
    assert open_uploads(f"{bucket}/out", "eu-west-1") == []


def test_a_file_of_many_parts(s3: S3Service) -> None:
    bucket = s3.bucket()
    numbers = np.random.default_rng(1).integers(0, 2**60, 1_300_000)
    env = hg.StreamEnvironment(parallelism=1, deployment=hg.LocalDeployment(1, processes=False))
    env.from_source(hg.sources.iterable(pa.table({"n": numbers}))).sink_to(hg.sinks.parquet(f"{bucket}/out"))
    env.execute()
    filesystem, path = fs.FileSystem.from_uri(f"{bucket}/out")
    (file,) = ds.dataset(path, filesystem=filesystem, format="parquet").files
    assert filesystem.get_file_info(file).size > 8 << 20, "more than one part"
    assert pq.read_table(file, filesystem=filesystem)["n"].to_numpy().tolist() == numbers.tolist()


def test_a_job_without_rows_leaves_the_schema(s3: S3Service) -> None:
    bucket = s3.bucket()
    write(hg.sinks.parquet(f"{bucket}/out"), rows=pa.table({"n": pa.array([], pa.int64())}))
    filesystem, path = fs.FileSystem.from_uri(f"{bucket}/out")
    assert ds.dataset(path, filesystem=filesystem, format="parquet").schema.names == ["n"]


def test_modes(s3: S3Service) -> None:
    bucket = s3.bucket()
    write(hg.sinks.parquet(f"{bucket}/out"))
    with pytest.raises(hg.SinkError, match="the folder is not empty"):
        write(hg.sinks.parquet(f"{bucket}/out"))
    write(hg.sinks.parquet(f"{bucket}/out", mode="append"), rows=[{"city": "Bonn", "km": 1}])
    assert len(rows_in(f"{bucket}/out")) == 4
    write(hg.sinks.parquet(f"{bucket}/out", mode="overwrite"), rows=[{"city": "Bonn", "km": 1}])
    assert rows_in(f"{bucket}/out") == [{"city": "Bonn", "km": 1}]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_sink_keeps_the_contract(s3: S3Service) -> None:
    bucket = s3.bucket()
    check_sink(lambda name: hg.sinks.parquet(f"{bucket}/{name}"), lambda name: rows_in(f"{bucket}/{name}"))
    assert uploads(s3, bucket) == []


def test_programs_that_crash_or_sleep_leave_each_row_once(s3: S3Service) -> None:
    """A part of the contract: crashes at the steps of one checkpoint, and at a line of its commit."""
    bucket = s3.bucket()
    check_sink(
        lambda name: hg.sinks.parquet(f"{bucket}/{name}"), lambda name: rows_in(f"{bucket}/{name}"), rows=ITS_ROWS,
        checkpoints=[2], lines=1,
    )  # fmt: skip
    assert uploads(s3, bucket) == []


def test_uploads_of_a_killed_program_are_aborted_by_the_next_one(s3: S3Service) -> None:
    """It was lost before its first checkpoint, and the next program starts afresh."""
    bucket = s3.bucket()
    options = {"checkpoint_dir": f"{bucket}/checkpoints", "checkpoint_interval": "1 h"}
    program = PROGRAM.format(root=str(ROOT), out=f"{bucket}/out", options=options)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(uploads(s3, bucket)) == 1
    write(hg.sinks.parquet(f"{bucket}/out"), **options)
    assert uploads(s3, bucket) == []
    assert in_order(rows_in(f"{bucket}/out")) == in_order(ROWS)


@pytest.mark.usefixtures("s3")
def test_a_missing_bucket_is_known_before_a_task_runs() -> None:
    with pytest.raises(hg.SinkError, match="s3://no-such-bucket/out: cannot be written: bucket 'no-such-bucket': "):
        write(hg.sinks.parquet("s3://no-such-bucket/out"))


def test_missing_rights_are_known_before_a_task_runs(s3: S3Service) -> None:
    def denied(environ: dict[str, Any], passed_on: Callable[[], Iterable[bytes]], start: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST":
            return passed_on()
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>"]

    bucket = s3.bucket()
    with s3.failing(denied), pytest.raises(hg.SinkError, match="cannot be written: bucket .*AccessDenied"):
        write(hg.sinks.parquet(f"{bucket}/out"))


def test_a_lost_answer_to_a_commit_shows_the_file_once(s3: S3Service) -> None:
    """The service has completed the upload, and the driver asks again."""
    bucket, failed = s3.bucket(), []

    def lost(environ: dict[str, Any], passed_on: Callable[[], Iterable[bytes]], start: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST" or "uploadId=" not in environ["QUERY_STRING"] or failed:
            return passed_on()
        failed.append(list(passed_on()))
        start("500 Internal Server Error", [("Content-Type", "application/xml")])
        return [b"<Error><Code>InternalError</Code><Message>as planned</Message></Error>"]

    with s3.failing(lost):
        write(hg.sinks.parquet(f"{bucket}/out"))
    assert failed
    assert in_order(rows_in(f"{bucket}/out")) == in_order(ROWS)
