"""Jobs in processes whose checkpoints and savepoints are on S3."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import headgate as hg
from headgate.cli import main
from headgate.s3 import _client
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.exactly_once import build, committed, environment, expected
from tests.runtime.faults import behind_gate, build_gated, gated, open_gate
from tests.runtime.jobs import eventually, pids
from tests.s3_service import S3Service


def on_s3(folder: Path, checkpoints: str) -> hg.StreamEnvironment:
    return environment(folder, hg.LocalDeployment(2, processes=True), checkpoint_dir=checkpoints)


def test_a_job_loses_a_process_and_is_resumed(
    tmp_path: Path, s3: S3Service, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = s3.bucket()
    storage = CheckpointStorage(f"{bucket}/checkpoints", "job")
    first = build_gated(on_s3(tmp_path, f"{bucket}/checkpoints"), tmp_path).execute_async()
    eventually(storage.completed, 60)
    os.kill(pids()[1], signal.SIGKILL)
    eventually(lambda: first.restarts == 1 and first.status() == "RUNNING", 60)
    savepoint = first.savepoint(f"{bucket}/savepoints", timeout=60)
    assert savepoint.startswith(f"{bucket}/savepoints/job/sp-")
    first.stop(timeout=60)
    second = build_gated(on_s3(tmp_path, f"{bucket}/checkpoints"), tmp_path).execute_async(resume="latest")
    open_gate(tmp_path)
    second.wait(120)
    assert committed(tmp_path) == expected()
    kept = storage.completed()
    begun = {key.split("/")[2] for key in s3.keys(f"{bucket}/checkpoints/job/chk-") if not key.endswith("/")}
    assert begun == {folder.rpartition("/")[2] for folder in kept}, "nothing is left of others"
    capsys.readouterr()
    assert main(["checkpoints", "list", f"{bucket}/checkpoints", "--json", "-"]) == 0
    assert [each["uri"] for each in json.loads(capsys.readouterr().out)][:1] == kept[:1]
    assert main(["checkpoints", "show", savepoint]) == 0
    assert "savepoint" in capsys.readouterr().out
    for uri in (f"{bucket}/checkpoints/job", savepoint):
        assert main(["checkpoints", "verify", uri]) == 0


def test_a_lost_process_costs_no_row_of_a_file_on_s3(tmp_path: Path, s3: S3Service) -> None:
    bucket = s3.bucket()
    config = hg.Config(checkpoint_dir=f"{bucket}/checkpoints", checkpoint_interval="200 ms")
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True), config=config)
    source = behind_gate(hg.sources.generate(numbered, rows=20_000, rate=10_000), tmp_path, before=7_000)
    env.from_source(source).sink_to(hg.sinks.parquet(f"{bucket}/out"))
    job = env.execute_async()
    eventually(lambda: len(job.checkpoints()) > 1, 60)
    os.kill(pids()[1], signal.SIGKILL)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 1
    filesystem, path = fs.FileSystem.from_uri(f"{bucket}/out")
    rows = ds.dataset(path, filesystem=filesystem, format="parquet").to_table()
    assert sorted(rows["n"].to_pylist()) == list(range(20_000))
    uploads = s3.client.list_multipart_uploads(Bucket=bucket.removeprefix("s3://"), Prefix="out/")
    assert uploads.get("Uploads", []) == []


def numbered(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64())})


def test_a_job_starts_from_a_savepoint(tmp_path: Path, s3: S3Service) -> None:
    """It needs no other checkpoints."""
    bucket = s3.bucket()
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))
    job = build_gated(env, tmp_path).execute_async()
    savepoint = job.stop(savepoint=bucket, timeout=60)
    open_gate(tmp_path)
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))
    build_gated(env, tmp_path).execute(resume=savepoint)
    assert committed(tmp_path) == expected()


def test_only_the_driver_loads_boto3(tmp_path: Path, s3: S3Service) -> None:
    """Taskmanagers write their parts with `pyarrow.fs`; they need no extra."""

    def loaded(batch: pa.RecordBatch) -> pa.RecordBatch:
        if "boto3" in sys.modules or "botocore" in sys.modules:
            raise AssertionError("boto3 is loaded")
        return batch

    job = build(on_s3(tmp_path, s3.bucket()), tmp_path, loaded, source=gated(tmp_path)).execute_async()
    eventually(lambda: any(record.size for record in job.checkpoints()), 60)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 0


@pytest.mark.parametrize("resume", [None, "latest", "latest-if-any"])
def test_a_job_without_boto3_does_not_start(
    tmp_path: Path, s3: S3Service, monkeypatch: pytest.MonkeyPatch, resume: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    _client.cache_clear()
    with pytest.raises(hg.ConfigError, match=r"boto3: pip install 'headgate\[s3\]'"):
        build(on_s3(tmp_path, s3.bucket()), tmp_path).execute(resume=resume)
    assert not (tmp_path / "out").exists()
    assert not pids()


@pytest.mark.parametrize("resume", [None, "latest"])
@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_a_job_on_another_object_store_does_not_start(tmp_path: Path, scheme: str, resume: str | None) -> None:
    with pytest.raises(hg.ConfigError, match="gcs cannot create a file only if it does not exist"):
        build(on_s3(tmp_path, f"{scheme}://bucket/x"), tmp_path).execute(resume=resume)
    assert not (tmp_path / "out").exists()
    assert not pids()
