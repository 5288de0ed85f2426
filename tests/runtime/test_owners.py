"""A driver that was paused and replaced ends when it wakes up; its successor goes on, and each row is there once."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyarrow import fs

import headgate as hg
from headgate.runtime.taskmanager import state_upload
from headgate.state import checkpoint_storage
from headgate.state.checkpoint_line import CheckpointName
from headgate.state.checkpoint_metadata import CheckpointMetadata
from tests.exactly_once import build, committed, environment, expected
from tests.runtime.faults import build_gated, gated, open_gate
from tests.runtime.jobs import eventually
from tests.s3_service import S3Service

ROOT = Path(__file__).resolve().parents[2]

#: Runs the job and stops itself, once, at the moment that is patched in.
DRIVER = """
import os, pathlib, signal, sys; sys.path[:0] = [{root!r}]
import headgate as hg
from headgate.connectors.file_sinks import file_sink
from headgate.state import checkpoint_storage
from tests.exactly_once import environment
from tests.runtime.faults import build_gated

folder, calls = pathlib.Path({folder!r}), []

def stopping(function, at):
    def stops(*arguments):
        calls.append(function)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGSTOP)
        return function(*arguments)
    return stops

{patch}
env = environment(folder, hg.LocalDeployment(2, processes={processes}), checkpoint_dir={checkpoints!r})
build_gated(env, folder).execute(resume="latest-if-any")
"""
#: Each is between the look whether the job is still one's own, and what is done then.
MOMENTS = {
    "while metadata is stored": "checkpoint_storage.store = stopping(checkpoint_storage.store, 3)",
    "before a file is shown": "file_sink._show = stopping(file_sink._show, 1)",
    "before the sink looks": "file_sink.FileSink.commit = stopping(file_sink.FileSink.commit, 3)",
}
#: Before the first hidden file is made, and before there is a checkpoint.
BEFORE_A_FILE = """
from headgate.connectors.file_sinks import hidden_files
hidden_files.RenamedFiles.create = stopping(hidden_files.RenamedFiles.create, 1)
"""
#: In the first upload that ends when a checkpoint is complete.
IN_AN_UPLOAD = """
from headgate.runtime.taskmanager import state_upload
write = state_upload.write_part

def write_part(place, *arguments):
    part = write(place, *arguments)
    if any((folder / "checkpoints").glob("*/chk-*/_metadata")):
        os.kill(os.getpid(), signal.SIGSTOP)
    return part

state_upload.write_part = write_part
"""
#: When the first rows are in a hidden file, and no checkpoint is.
IN_A_FILE = """
import functools
from headgate.connectors.file_sinks import file_writer
write, environment = file_writer.FileWriter.write, functools.partial(environment, checkpoint_interval="1 h")

def stops(writer, batch):
    write(writer, batch)
    writer.flush(1)
    os.kill(os.getpid(), signal.SIGSTOP)

file_writer.FileWriter.write = stops
"""


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.soak)])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the folder for checkpoints."""
    if request.param == "disk":
        return str(tmp_path / "checkpoints")
    service: S3Service = request.getfixturevalue("s3")
    return f"{service.bucket()}/checkpoints"


@contextmanager
def driver(folder: Path, checkpoints: str, patch: str, processes: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Another program that runs the job, and has stopped itself."""
    program = DRIVER.format(
        root=str(ROOT), folder=str(folder), checkpoints=checkpoints, patch=patch, processes=processes
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, env=environ)
    try:
        eventually(lambda: psutil.Process(started.pid).status() == psutil.STATUS_STOPPED, 120)
        yield started
    finally:
        if started.poll() is None:
            started.kill()
            started.communicate()


def job_in(folder: Path, checkpoints: str) -> hg.StreamEnvironment:
    """The job, to be run by this program."""
    deployment = hg.LocalDeployment(2, processes=False)
    return build_gated(environment(folder, deployment, checkpoint_dir=checkpoints), folder)


def hidden(folder: Path) -> list[Path]:
    """Files that are not shown."""
    return list((folder / "out").rglob("_part-*"))


def completes(checkpoints: str, owner: int) -> bool:
    """Whether this owner has completed a checkpoint."""
    folders = checkpoint_storage.CheckpointStorage(checkpoints, "job").completed()
    names = [CheckpointName.of(folder.rpartition("/")[2]) for folder in folders]
    return any(name is not None and name.owner == owner for name in names)


@pytest.mark.turns(3)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_paused_driver_is_replaced_and_wakes_up(tmp_path: Path, checkpoints: str, moment: str) -> None:
    with driver(tmp_path, checkpoints, MOMENTS[moment], processes=moment == "before a file is shown") as paused:
        job = job_in(tmp_path, checkpoints).execute_async(resume="latest-if-any")
        eventually(lambda: completes(checkpoints, 2), 120)
        paused.send_signal(signal.SIGCONT)
        _, said = paused.communicate(timeout=120)
    assert paused.returncode == 1
    assert re.search("headgate.errors.Superseded: .*another program took over", said)
    assert said.count(f"process {os.getpid()} on") == 1, said
    open_gate(tmp_path)
    job.wait(120)
    assert committed(tmp_path) == expected()
    assert hidden(tmp_path) == []


def test_a_driver_that_writes_after_its_successor_has_ended_leaves_nothing(tmp_path: Path) -> None:
    """It was paused before its first checkpoint, so its successor started afresh."""
    checkpoints = str(tmp_path / "checkpoints")
    with driver(tmp_path, checkpoints, BEFORE_A_FILE) as paused:
        job = job_in(tmp_path, checkpoints).execute_async(resume="latest-if-any")
        open_gate(tmp_path)
        job.wait(120)
        paused.send_signal(signal.SIGCONT)
        _, said = paused.communicate(timeout=120)
    assert paused.returncode == 1
    assert re.search("headgate.errors.Superseded: .*another program took over", said)
    assert committed(tmp_path) == expected()
    assert hidden(tmp_path) == []


def test_a_paused_driver_shows_nothing_on_s3_when_it_wakes_up(tmp_path: Path, s3: S3Service) -> None:
    """It sleeps before it completes an upload, and its successor completes or aborts that upload."""
    out, checkpoints = f"{s3.bucket()}/out", str(tmp_path / "checkpoints")
    to_s3 = f"build_gated = functools.partial(build_gated, sink=hg.sinks.parquet({out!r}))"
    with driver(tmp_path, checkpoints, f"import functools\n{MOMENTS['before a file is shown']}\n{to_s3}") as paused:
        env = environment(tmp_path, hg.LocalDeployment(2, processes=False), checkpoint_dir=checkpoints)
        job = build_gated(env, tmp_path, hg.sinks.parquet(out)).execute_async(resume="latest-if-any")
        eventually(lambda: completes(checkpoints, 2), 120)
        paused.send_signal(signal.SIGCONT)
        _, said = paused.communicate(timeout=120)
    assert paused.returncode == 1
    assert re.search("headgate.errors.Superseded: .*another program took over", said)
    open_gate(tmp_path)
    job.wait(120)
    fs.copy_files(out, (tmp_path / "out").as_uri())
    assert committed(tmp_path) == expected()
    assert "Uploads" not in s3.client.list_multipart_uploads(Bucket=out.split("/")[2])


def test_two_paused_drivers_wake_up_beside_a_third(tmp_path: Path, checkpoints: str) -> None:
    """One sleeps before it shows a file, its successor while it stores metadata. They go on in their order."""
    with (
        driver(tmp_path, checkpoints, MOMENTS["before a file is shown"]) as first,
        driver(tmp_path, checkpoints, MOMENTS["while metadata is stored"]) as second,
    ):
        newest = job_in(tmp_path, checkpoints).execute_async(resume="latest-if-any")
        eventually(lambda: completes(checkpoints, 3), 120)
        for paused in (first, second):
            paused.send_signal(signal.SIGCONT)
            _, said = paused.communicate(timeout=120)
            assert paused.returncode == 1
            assert re.search("headgate.errors.Superseded: .*another program took over", said)
            assert said.count(f"process {os.getpid()} on") == 1, said
        assert newest.status() == "RUNNING"
    open_gate(tmp_path)
    newest.wait(120)
    assert newest.restarts == 0
    assert committed(tmp_path) == expected()
    assert hidden(tmp_path) == []


def test_the_older_of_two_programs_ends_between_checkpoints(
    tmp_path: Path, checkpoints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is paused: somebody started the job a second time."""
    monkeypatch.setattr("headgate.runtime.checkpointing.checkpoints.OWNER_CHECK_INTERVAL", 0.05)
    older = job_in(tmp_path, checkpoints).execute_async()
    eventually(lambda: completes(checkpoints, 1), 60)
    newer = job_in(tmp_path, checkpoints).execute_async(resume="latest")
    with pytest.raises(hg.Superseded, match=r"give each job a name or a folder of its own"):
        older.wait(60)
    open_gate(tmp_path)
    newer.wait(120)
    assert committed(tmp_path) == expected()


def test_a_program_that_cannot_start_leaves_the_running_one_alone(tmp_path: Path) -> None:
    job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: committed(tmp_path), 60)
    with pytest.raises(hg.SinkError, match="the folder is not empty"):
        build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute()
    open_gate(tmp_path)
    job.wait(120)
    assert committed(tmp_path) == expected()


def run_until(folder: Path, done: Callable[[hg.JobHandle], object], before: int, resume: str | None = None) -> None:
    """A job that reads so many rows, and is cancelled then."""
    env = environment(folder, hg.LocalDeployment(2, processes=False))
    job = build(env, folder, source=gated(folder, before=before)).execute_async(resume=resume)
    eventually(lambda: done(job), 60)
    job.cancel()


def complete(folder: Path) -> list[Path]:
    """The folders of complete checkpoints."""
    return [path.parent for path in (folder / "checkpoints").glob("job/chk-*/_metadata")]


def shown(folder: Path) -> int:
    """The last checkpoint of which rows are visible, as the sink's folder says."""
    notes = (folder / "out" / ".headgate").glob("*/*.note")
    return max(int(json.loads(note.read_text())["checkpoint"]) for note in notes)


def test_the_newest_metadata_are_gone(tmp_path: Path) -> None:
    """What was shown with them would be there twice: the sink knows, and says both numbers."""
    run_until(tmp_path, lambda job: complete(tmp_path), before=2000)
    older = max(complete(tmp_path), key=lambda path: int(path.name[4:]))
    shutil.copytree(older, tmp_path / "copy")
    run_until(tmp_path, lambda job: committed(tmp_path), before=12_000, resume="latest")
    for checkpoint in complete(tmp_path):
        shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", older)
    before, numbers = committed(tmp_path), (shown(tmp_path), int(older.name[4:]))
    open_gate(tmp_path)

    def again() -> hg.StreamEnvironment:
        return build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path)

    said = r"parquet: the results have the rows of checkpoint {}, and the job would resume from checkpoint {}:"
    with pytest.raises(hg.CheckpointError, match=said.format(*numbers)):
        again().execute(resume="latest")
    assert committed(tmp_path) == before
    again().execute(resume="latest", allow_duplicates=True)
    assert len(committed(tmp_path)) > len(expected()), "as was allowed"


def test_a_folder_that_is_removed_while_its_checkpoint_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint fails: it would be complete, and could not be read."""
    store, removed = checkpoint_storage.store, list[str]()

    def removes(folder: str, metadata: CheckpointMetadata) -> str:
        if not removed and any(metadata.files):
            removed.append(folder)
            shutil.rmtree(folder)
        return store(folder, metadata)

    monkeypatch.setattr(checkpoint_storage, "store", removes)
    job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: job.restarts and complete(tmp_path), 60)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 1
    [failure] = [each.failure for each in job.checkpoints() if each.failure] or [None]  # type: ignore[list-item]
    assert failure is None or "was removed before its checkpoint was complete" in failure
    assert removed[0] not in map(str, complete(tmp_path))
    assert committed(tmp_path) == expected()


def test_what_is_left_of_a_checkpoint_that_was_given_up_is_gone_before_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it takes the room that the next one needs."""
    write, seen = checkpoint_storage.write_part, list[list[str]]()

    def full(folder: str, attempt: int, *arguments: Any) -> Any:
        if attempt == 0:
            write(folder, attempt, *arguments)
            raise hg.CheckpointError("no space left")
        seen.append([path.name for path in (tmp_path / "checkpoints" / "job").glob("chk-*")])
        return write(folder, attempt, *arguments)

    monkeypatch.setattr(state_upload, "write_part", full)
    job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: seen, 60)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 1
    assert "chk-1" not in seen[0]
    assert committed(tmp_path) == expected()


def incomplete(folder: Path) -> set[str]:
    """The names of checkpoints' folders without metadata."""
    return {path.name for path in (folder / "checkpoints").glob("*/chk-*") if not (path / "_metadata").exists()}


def test_what_a_killed_driver_left_is_gone_before_its_successor_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a disk that it filled stays full."""
    checkpoints = str(tmp_path / "checkpoints")
    with driver(tmp_path, checkpoints, IN_AN_UPLOAD) as killed:
        killed.kill()
        killed.communicate()
    left, seen, write = incomplete(tmp_path), list[set[str]](), checkpoint_storage.write_part
    assert left

    def looks(*arguments: Any) -> Any:
        seen.append(incomplete(tmp_path))
        return write(*arguments)

    monkeypatch.setattr(state_upload, "write_part", looks)
    job = job_in(tmp_path, checkpoints).execute_async(resume="latest")
    eventually(lambda: seen, 60)
    open_gate(tmp_path)
    job.wait(120)
    assert not left & seen[0]
    assert committed(tmp_path) == expected()


@pytest.mark.parametrize("resume", [None, "latest-if-any"])
def test_hidden_files_of_a_driver_that_is_killed_before_its_first_checkpoint(
    tmp_path: Path, resume: str | None
) -> None:
    """The next start of the same job removes them."""
    checkpoints = str(tmp_path / "checkpoints")
    with driver(tmp_path, checkpoints, IN_A_FILE) as killed:
        killed.kill()
        killed.communicate()
    assert hidden(tmp_path)
    assert not complete(tmp_path)
    job = job_in(tmp_path, checkpoints).execute_async(resume=resume)
    open_gate(tmp_path)
    job.wait(120)
    assert hidden(tmp_path) == []
    assert committed(tmp_path) == expected()
