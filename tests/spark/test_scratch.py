"""The temporary folder of sessions that we build: who removes it, and when."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from headgate.spark.scratch import Scratch, remove_abandoned
from tests.spark.conftest import run_script

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_folder_stays_as_long_as_anyone_has_it_locked() -> None:
    scratch = Scratch()
    heir = os.dup(scratch.lock)
    os.close(scratch.lock)
    remove_abandoned()
    assert scratch.folder.is_dir()
    os.close(heir)
    remove_abandoned()
    assert not scratch.folder.exists()


def test_what_only_has_such_a_name_stays(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / "lock").touch()
    (tmp_path / "headgate-spark-link").symlink_to(target)
    (tmp_path / "headgate-spark-unlocked").mkdir()
    (tmp_path / "headgate-spark-file").touch()
    elsewhere = tmp_path / "headgate-spark-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").symlink_to(target / "lock")
    before = set(tmp_path.rglob("*"))
    remove_abandoned()
    assert set(tmp_path.rglob("*")) == before


def test_what_is_another_users_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch()
    os.close(scratch.lock)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    remove_abandoned()
    assert scratch.folder.is_dir()


def test_a_program_that_was_killed_is_cleaned_up_after(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        """
import os, signal
from headgate.spark.session import build_session
build_session("local[1]", "killed")
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert done.returncode == -signal.SIGKILL
    (folder,) = tmp_path.glob("headgate-spark-*")
    assert (folder / "spark.log").is_file()
    deadline = time.monotonic() + 60
    while folder.exists():  # its JVM, which ends when it finds its program gone, has the folder locked until then
        assert time.monotonic() < deadline
        remove_abandoned()
        time.sleep(0.05)
