"""Programs that start a job from its beginning while another one does the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import headgate as hg
from headgate.connectors.connector import Claim
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.ownership import Program
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.exactly_once import build, committed, environment, expected, rows


def job(folder: Path) -> hg.StreamEnvironment:
    return build(environment(folder, hg.LocalDeployment(1, processes=False)), folder, source=rows(rate=None))


def test_a_job_that_another_program_has_run_meanwhile_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds the folder empty, and sleeps until the first is done."""
    claim = CheckpointStorage.claim

    def slept(storage: CheckpointStorage, program: Program, least: int = 1, known: int | None = None) -> int:
        monkeypatch.undo()
        job(tmp_path).execute()
        return claim(storage, program, least, known)

    monkeypatch.setattr(CheckpointStorage, "claim", slept)
    with pytest.raises(hg.CheckpointError, match="another program has started job 'job' in the meantime"):
        job(tmp_path).execute()
    assert committed(tmp_path) == expected()


def test_a_folder_that_has_results_meanwhile_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, of two jobs that have no checkpoints in common."""
    begin = FileSink.begin

    def slept(sink: FileSink, claim: Claim) -> None:
        monkeypatch.undo()
        job(tmp_path).execute()
        shutil.rmtree(tmp_path / "checkpoints")
        begin(sink, claim)

    other = environment(tmp_path, hg.LocalDeployment(1, processes=False), checkpoint_dir=tmp_path / "others")
    build(other, tmp_path, source=rows(rate=None))
    monkeypatch.setattr(FileSink, "begin", slept)
    with pytest.raises(hg.SinkError, match="the folder is not empty"):
        other.execute()
    assert committed(tmp_path) == expected()


def test_checkpoints_without_their_owners_are_older_than_the_next_one(tmp_path: Path) -> None:
    """A folder is copied elsewhere, without `owners`: what comes next is newer, whatever owner took the last."""
    for _ in range(3):
        job(tmp_path).execute(resume="latest-if-any")
    folder = next((tmp_path / "checkpoints").iterdir())
    shutil.rmtree(folder / "owners")
    storage = CheckpointStorage(tmp_path / "checkpoints", folder.name)
    assert storage.claim(Program.this("x-1")) == 4
