"""Storage and sinks that stand on the driver: the job goes on to see to cancels, losses and deadlines, and what is
stored late is lost by nobody and there twice for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import headgate as hg
from headgate.connectors.connector import Sink
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.errors import StorageError
from headgate.runtime.checkpointing import resume, resumption
from headgate.runtime.master import job_end
from headgate.runtime.task import restore
from headgate.state import checkpoint_files
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.ending import END, within
from tests.exactly_once import build, committed, environment, expected
from tests.runtime.faults import Commit, build_gated, committing, gated, kill, open_gate, raises
from tests.runtime.jobs import eventually, pid_of

PATIENCE = 60.0


class Door:
    """Where the driver stands, once it is closed, until the test opens it."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        if self.closed.is_set():
            self.reached.set()
            self.opened.wait(PATIENCE)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """The end of a job does not wait for long."""
    monkeypatch.setattr(job_end, "_SETTLE_TIMEOUT", 0.1)
    monkeypatch.setattr(job_end, "_CLEAN_TIMEOUT", 0.1)
    door = Door()
    yield door
    door.opened.set()


@pytest.fixture
def slow(door: Door, monkeypatch: pytest.MonkeyPatch) -> Door:
    """In the way of metadata."""
    complete = CheckpointStorage.complete

    def stands(self: CheckpointStorage, metadata: CheckpointMetadata) -> str:
        door.pass_through()
        return complete(self, metadata)

    monkeypatch.setattr(CheckpointStorage, "complete", stands)
    return door


def start(folder: Path, door: Door, **options: Any) -> hg.JobHandle:
    """Stands at the door, with one checkpoint before that at least."""
    job = build_gated(environment(folder, hg.LocalDeployment(2, processes=False), **options), folder).execute_async()
    eventually(lambda: any((folder / "out").glob("part-*")), PATIENCE)
    door.closed.set()
    assert door.reached.wait(PATIENCE)
    return job


@pytest.mark.alone
def test_a_job_is_cancelled_while_metadata_is_being_stored(tmp_path: Path, slow: Door) -> None:
    """What its sinks have written stays, for the checkpoint may be complete: here it is, when all is over."""
    job = start(tmp_path, slow)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled, match=r"\(checkpoint \d+ was being stored when the job ended; its daemon "):
        job.wait()
    before = len(list(tmp_path.glob("checkpoints/*/chk-*/_metadata")))
    slow.closed.clear()
    slow.opened.set()
    eventually(lambda: len(list(tmp_path.glob("checkpoints/*/chk-*/_metadata"))) > before, PATIENCE)
    open_gate(tmp_path)
    build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute(resume="latest")
    assert committed(tmp_path) == expected()
    assert not list((tmp_path / "out").glob("_*"))


@pytest.mark.parametrize("tolerable", [0, 1000])
def test_metadata_that_takes_longer_than_the_checkpoint_may(
    tmp_path: Path, slow: Door, tolerable: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The job starts again from what is stored after all, or goes on."""
    options = {"checkpoint_timeout": "1 s", "tolerable_failed_checkpoints": tolerable}
    job = start(tmp_path, slow, **options)
    reason = "(checkpoint_timeout); all tasks have acknowledged, but the metadata was not stored in time"
    [late] = eventually(lambda: [each for each in job.checkpoints() if reason in str(each.failure)][:1], PATIENCE)
    eventually(lambda: job.status() == ("RUNNING" if tolerable else "RESTARTING"), PATIENCE)
    slow.closed.clear()
    slow.opened.set()
    eventually(lambda: f"checkpoint {late.checkpoint} is complete, but too late to count" in caplog.text, PATIENCE)
    open_gate(tmp_path)
    assert (job.wait(PATIENCE).restarts > 0) == (tolerable == 0)
    assert committed(tmp_path) == expected()


@pytest.mark.alone
def test_a_job_that_waits_for_its_storage_to_start_again_is_cancelled(tmp_path: Path, slow: Door) -> None:
    job = start(tmp_path, slow, checkpoint_timeout="1 s")
    eventually(lambda: job.status() == "RESTARTING", PATIENCE)
    with within(END):
        job.cancel()
    assert job.status() == "CANCELLED"


def held_up(folder: Path, door: Door) -> Sink:
    """Files that cannot be committed while the door is closed."""

    def commit(really: Commit, pending: Sequence[Any]) -> None:
        door.pass_through()
        really(pending)

    return committing(hg.sinks.parquet(folder / "out"), commit)


@pytest.mark.alone
@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_commit_that_does_not_return(tmp_path: Path, door: Door, checkpoints: bool) -> None:
    """Of a checkpoint, or at the end of a job without."""
    door.closed.set()
    deployment = hg.LocalDeployment(2, processes=False)
    env = hg.StreamEnvironment(parallelism=2, deployment=deployment)
    if checkpoints:
        env = environment(tmp_path, deployment)
    else:
        open_gate(tmp_path)
    job = build_gated(env, tmp_path, sink=held_up(tmp_path, door)).execute_async()
    assert door.reached.wait(PATIENCE)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    stuck = "the commit of committing did not return when the job ended; its daemon thread is left running"
    assert f"({stuck})" in caught.value.message


def test_a_process_is_lost_during_a_commit_that_takes_long(tmp_path: Path, door: Door) -> None:
    """That is noticed meanwhile, and the job starts again when the commit has returned."""
    door.closed.set()
    env = environment(tmp_path, hg.LocalDeployment(2, processes=True))
    job = build_gated(env, tmp_path, sink=held_up(tmp_path, door)).execute_async()
    assert door.reached.wait(PATIENCE)
    kill(pid_of(job, 1))
    eventually(lambda: job.status() == "RESTARTING", PATIENCE)
    door.opened.set()
    open_gate(tmp_path)
    assert job.wait(PATIENCE).restarts == 1
    assert committed(tmp_path) == expected()


@pytest.fixture
def slow_clean_up(door: Door, monkeypatch: pytest.MonkeyPatch) -> Door:
    """In the way of what sinks remove at the end of a job."""
    abort = FileSink.abort

    def stands(self: FileSink, *arguments: Any, **named: Any) -> None:
        door.pass_through()
        abort(self, *arguments, **named)

    monkeypatch.setattr(FileSink, "abort", stands)
    return door


@pytest.mark.alone
@pytest.mark.parametrize("fails", [False, True])
def test_a_clean_up_that_does_not_return(tmp_path: Path, slow_clean_up: Door, fails: bool) -> None:
    """The end of a job that is cancelled, or fails, does not wait for it; what is visible stays, and it goes on."""
    env = environment(tmp_path, hg.LocalDeployment(2, processes=True), restart=hg.restart.none())
    job = build_gated(env, tmp_path).execute_async()
    eventually(lambda: committed(tmp_path), PATIENCE)
    slow_clean_up.closed.set()
    with within(END):
        if fails:
            kill(pid_of(job, 0))
        else:
            job.cancel()
        with pytest.raises(hg.HeadgateError) as caught:
            job.wait(PATIENCE)
    assert type(caught.value) is (hg.TaskManagerLost if fails else hg.JobCancelled)
    stuck = "the clean-up of parquet did not return when the job ended; its daemon thread is left running"
    assert f"({stuck})" in caught.value.message
    seen = committed(tmp_path)
    slow_clean_up.opened.set()
    eventually(lambda: not list((tmp_path / "out").glob("_*")), PATIENCE)
    assert set(seen) <= set(committed(tmp_path)) < set(expected())


def cannot_be_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a task that resumes from a checkpoint."""
    read, calls = checkpoint_files.read_state, iter(range(1000))

    def fails(file: Any) -> Any:
        if next(calls) == 0:
            raise StorageError(f"{file.path}: cannot be read: Input/output error")
        return read(file)

    monkeypatch.setattr(restore, "read_state", fails)


@pytest.mark.alone
@pytest.mark.parametrize("cancelled", [True, False])
def test_storage_stands_while_a_restart_looks_for_a_checkpoint(
    tmp_path: Path, door: Door, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """That is seen to meanwhile: a cancel ends the job, and else it starts again when the storage answers."""
    newest = resume.newest

    def stands(*arguments: Any) -> Any:
        door.pass_through()
        return newest(*arguments)

    monkeypatch.setattr(resumption, "newest", stands)
    cannot_be_read_once(monkeypatch)
    lever = tmp_path / "raise"
    env = environment(tmp_path, hg.LocalDeployment(2, processes=False), restart=hg.restart.fixed(9, delay=0))
    job = build(env, tmp_path, source=gated(tmp_path, raises(lever))).execute_async()
    eventually(lambda: committed(tmp_path), PATIENCE)
    door.closed.set()
    lever.touch()
    assert door.reached.wait(PATIENCE)
    if cancelled:
        with within(END):
            job.cancel()
        assert job.status() == "CANCELLED"
        return
    door.opened.set()
    open_gate(tmp_path)
    assert job.wait(PATIENCE).restarts == 2
    assert committed(tmp_path) == expected()
