"""Temporary folders of built sessions and of rows: which program removes them, and when."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import pytest

from headgate.spark.scratch import ROWS, SPARK, Scratch, remove_abandoned
from tests.spark.conftest import run_script

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_locked_folder_stays() -> None:
    scratch = Scratch()
    heir = os.dup(scratch.lock)
    os.close(scratch.lock)
    remove_abandoned(SPARK, scratch.folder.parent)
    assert scratch.folder.is_dir()
    os.close(heir)
    remove_abandoned(SPARK, scratch.folder.parent)
    assert not scratch.folder.exists()


def test_other_things_with_such_a_name_stay(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.mkdir()
    (target / ".lock").touch()
    (tmp_path / "headgate-spark-link").symlink_to(target)
    (tmp_path / "headgate-spark-unlocked").mkdir()
    (tmp_path / "headgate-spark-file").touch()
    elsewhere = tmp_path / "headgate-spark-elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".lock").symlink_to(target / ".lock")
    before = set(tmp_path.rglob("*"))
    remove_abandoned(SPARK, tmp_path)
    assert set(tmp_path.rglob("*")) == before


def test_folders_of_another_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch()
    os.close(scratch.lock)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    remove_abandoned(SPARK, scratch.folder.parent)
    assert scratch.folder.is_dir()


@pytest.mark.parametrize(("boot", "stays"), [("other", True), ("", True), (None, False)])
def test_a_folder_that_another_machine_locked_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str | None, stays: bool
) -> None:
    """A shared disk may lock within one machine only. A container has a name of its own, and the machine's kernel."""
    scratch = Scratch()
    os.close(scratch.lock)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    if boot is not None:
        (tmp_path / "boot").write_text(boot)
        monkeypatch.setattr("headgate.spark.scratch._BOOT", tmp_path / ("boot" if boot else "none"))
    remove_abandoned(SPARK, tmp_path)
    assert scratch.folder.is_dir() == stays


ROWS_OF_ALL_KINDS = """
import os, signal, tempfile
import pyarrow as pa
import headgate as hg
from pathlib import Path
from headgate.spark.dataframe import spill
from headgate.spark.session import build_session

spark = build_session("local[3]", "killed")
spill(spark.range(3), None)  # a lookup

def kill(rows, checkpoint):
    print(sum(1 for _ in Path(tempfile.gettempdir()).glob("headgate-rows-*")), rows.count(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

config = hg.Config({options})
env = hg.StreamEnvironment(spark, parallelism=2, config=config)
env.from_source(hg.sources.{source}).sink_to(hg.sinks.foreach_dataframe(kill))
env.execute("killed")
"""
NEXT_SESSION = """
from headgate.spark.session import build_session
build_session("local[1]", "next")
"""
NUMBERS = "generate(lambda start, n: pa.record_batch({'v': pa.array(range(start, start + n), pa.int64())}), rows=10)"
CHECKPOINTED = "checkpoint_dir='checkpoints', checkpoint_interval='50 ms'"


@pytest.mark.parametrize(
    ("source", "options", "there", "remaining"),
    [pytest.param("dataframe(spark.range(10))", "", 3, 0, marks=pytest.mark.soak), (NUMBERS, CHECKPOINTED, 2, 1)],
    ids=["not resumable", "resumable"],
)
def test_folders_of_a_killed_program_are_removed_unless_a_checkpoint_names_their_rows(
    tmp_path: Path, source: str, options: str, there: int, remaining: int
) -> None:
    """Once all of them stayed forever."""
    done = run_script(tmp_path, ROWS_OF_ALL_KINDS.format(source=source, options=options))
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, [str(there), "10"]), done.stderr
    (tmp_path / "headgate-rows-0123456789ab").mkdir()  # a folder that was never locked
    remove_abandoned(ROWS, tmp_path)
    folders = [path for path in tmp_path.glob("headgate-rows-*") if path.name != "headgate-rows-0123456789ab"]
    assert len(folders) == remaining
    assert [len(list(folder.glob("*.parquet"))) > 0 for folder in folders] == [True] * remaining
    assert (tmp_path / "headgate-rows-0123456789ab").is_dir()
    (session,) = tmp_path.glob("headgate-spark-*")
    assert (session / "spark.log").is_file()
    with (session / ".lock").open("rb") as lock:  # the JVM holds it until it notices that its program is gone, and ends
        fcntl.flock(lock, fcntl.LOCK_EX)
    following = run_script(tmp_path, NEXT_SESSION, JAVA_HOME="/no/java")  # a JVM would take longer, and change nothing
    assert "Spark needs Java, and none was found" in following.stderr
    assert list(tmp_path.glob("headgate-spark-*")) == []
