"""Savepoints of jobs that run on: what they hold, what is committed with them, and what becomes of those that fail."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.runtime.taskmanager import state_upload
from headgate.state import checkpoint_storage
from headgate.state.checkpoint_storage import load_checkpoint
from tests.exactly_once import ROWS, committed, environment, expected
from tests.runtime.faults import build_gated, open_gate
from tests.runtime.jobs import eventually, numbers, pid_of, wait_until_running

PATIENCE = 60.0


def without_checkpoints(deployment: hg.LocalDeployment, parallelism: int = 2) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(parallelism=parallelism, deployment=deployment)


def seldom(folder: Path, deployment: hg.LocalDeployment) -> hg.StreamEnvironment:
    """With checkpoints, of which none is due."""
    config = hg.Config(checkpoint_dir=folder / "checkpoints", checkpoint_interval="1 h")
    return hg.StreamEnvironment(parallelism=2, config=config, deployment=deployment)


def test_a_job_without_checkpoints_goes_on_from_a_savepoint_with_another_parallelism(tmp_path: Path) -> None:
    deployment = hg.LocalDeployment(2, processes=True)
    first = build_gated(without_checkpoints(deployment), tmp_path).execute_async()
    wait_until_running(first, ROWS // 3)
    savepoint = first.savepoint(tmp_path / "kept", PATIENCE)
    assert first.status() == "RUNNING"
    assert Path(savepoint, "_metadata").is_file()
    seen = committed(tmp_path)
    assert seen
    assert set(seen) < set(expected())
    first.cancel()
    assert committed(tmp_path) == seen, "what was committed with the savepoint stays"
    open_gate(tmp_path)
    result = build_gated(without_checkpoints(deployment, 3), tmp_path).execute(resume=savepoint)
    assert committed(tmp_path) == expected()
    assert result.rows_in == ROWS


def test_a_job_goes_on_while_savepoints_are_taken(tmp_path: Path) -> None:
    job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    [first, *_] = eventually(lambda: job.checkpoints(), PATIENCE)
    assert abs(first.triggered_at - time.time()) < 3600, "in seconds since the epoch"
    with ThreadPoolExecutor(3) as threads:
        asked = list(threads.map(lambda _: job.savepoint(tmp_path / "kept", PATIENCE), range(3)))
    assert len(set(asked)) == 3
    open_gate(tmp_path)
    result = job.wait(PATIENCE)
    assert (result.rows_in, result.restarts) == (ROWS, 0)
    assert committed(tmp_path) == expected()
    assert sorted(map(str, tmp_path.glob("kept/*/*"))) == sorted(asked), "no other is there, and all are kept"
    assert {load_checkpoint(uri).kind for uri in asked} == {"savepoint"}


def test_the_latest_checkpoint_may_be_a_savepoint(tmp_path: Path) -> None:
    """What sinks committed with it must not come again."""
    first = build_gated(seldom(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    wait_until_running(first, ROWS // 3)
    savepoint = first.savepoint(tmp_path / "kept", PATIENCE)
    first.cancel()
    [named] = tmp_path.glob("checkpoints/*/chk-*")
    assert load_checkpoint(named).folder == savepoint
    open_gate(tmp_path)
    assert (
        build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path)
        .execute(resume="latest")
        .rows_in
        == ROWS
    )
    assert committed(tmp_path) == expected()


def test_after_a_failure_the_job_goes_on_from_its_savepoint(tmp_path: Path) -> None:
    job = build_gated(seldom(tmp_path, hg.LocalDeployment(2, processes=True)), tmp_path).execute_async()
    wait_until_running(job, ROWS // 3)
    job.savepoint(tmp_path / "kept", PATIENCE)
    assert committed(tmp_path)
    os.kill(pid_of(job, 1), signal.SIGKILL)
    open_gate(tmp_path)
    assert job.wait(PATIENCE).restarts == 1
    assert committed(tmp_path) == expected()


def test_a_taskmanager_is_killed_during_a_savepoint(tmp_path: Path) -> None:
    """One stands, so that it cannot take its part, and is killed then."""
    job = build_gated(seldom(tmp_path, hg.LocalDeployment(2, processes=True)), tmp_path).execute_async()
    wait_until_running(job)
    standing = pid_of(job, 0)
    assert standing is not None
    os.kill(standing, signal.SIGSTOP)
    under_way = job._master.savepoint(tmp_path / "kept")
    eventually(lambda: job._master._checkpoints._coordinator._request is not None, PATIENCE)
    os.kill(standing, signal.SIGKILL)
    with pytest.raises(
        hg.CheckpointError, match=r"savepoint of job 'job' failed: the job failed: TaskManager 0 .* SIGKILL"
    ) as caught:
        under_way.result(PATIENCE)
    assert isinstance(caught.value.__cause__, hg.TaskManagerLost)
    savepoint = job.savepoint(tmp_path / "kept", PATIENCE)  # which waits for the restart
    open_gate(tmp_path)
    assert job.wait(PATIENCE).restarts == 1
    assert committed(tmp_path) == expected()
    assert list(map(str, tmp_path.glob("kept/*/*"))) == [savepoint]


def test_a_disk_that_is_full_is_no_failure_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = checkpoint_storage.write_part

    def write_part(folder: str, *arguments: Any) -> Any:
        if "kept" in folder:
            raise hg.CheckpointError("no space left")
        return write(folder, *arguments)

    monkeypatch.setattr(state_upload, "write_part", write_part)
    job = build_gated(seldom(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    wait_until_running(job)
    for _ in range(2):
        with pytest.raises(hg.CheckpointError, match="no space left"):
            job.savepoint(tmp_path / "kept", PATIENCE)
    assert "savepoint" in {record.kind for record in job.checkpoints()}
    open_gate(tmp_path)
    assert job.wait(PATIENCE).restarts == 0
    assert committed(tmp_path) == expected()


def test_where_none_can_be_had(tmp_path: Path) -> None:
    env = without_checkpoints(hg.LocalDeployment(1, processes=False), 1)
    env.from_source(hg.sources.generate(numbers, rows=10)).sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async("short")
    job.wait(PATIENCE)
    with pytest.raises(hg.CheckpointError, match="job 'short' is FINISHED: no savepoint can be taken"):
        job.savepoint(tmp_path / "kept", PATIENCE)
    assert job.checkpoints() == []
    (tmp_path / "file").touch()
    with pytest.raises(hg.CheckpointError, match="file"):
        job.savepoint(tmp_path / "file", PATIENCE)
    for nothing in (None, 5, b"kept", "a\0b", "\ud800"):
        with pytest.raises(hg.ConfigError, match="is not a path; give a path or URI"):
            job.savepoint(nothing, PATIENCE)  # type: ignore[arg-type]
    config = hg.Config(execution_mode="batch")
    batch = hg.StreamEnvironment(config=config)
    batch.from_source(hg.sources.generate(numbers, rows=10)).sink_to(hg.sinks.null())
    with pytest.raises(hg.CheckpointError, match="there are no checkpoints and savepoints with execution_mode='batch'"):
        batch.execute_async().savepoint(tmp_path / "kept", PATIENCE)


def test_a_savepoint_of_a_job_that_is_ending_is_taken_or_refused(tmp_path: Path) -> None:
    for number in range(5):
        env = without_checkpoints(hg.LocalDeployment(1, processes=False), 2)
        counts = env.from_source(hg.sources.generate(numbers, rows=1000)).key_by("n").aggregate(times=hg.count())
        counts.changes().sink_to(hg.sinks.parquet(tmp_path / f"out{number}"))
        job = env.execute_async(f"job{number}")
        try:
            savepoint = job.savepoint(tmp_path / "kept", PATIENCE)
        except hg.CheckpointError as error:
            if "is FINISHED" not in str(error):
                raise
        else:
            assert load_checkpoint(savepoint).job == f"job{number}"
        job.wait(PATIENCE)
        assert ds.dataset(tmp_path / f"out{number}").count_rows() == 1000
