"""A driver that was paused and replaced ends when it wakes up; its successor goes on, and each row is there once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import headgate as hg
from tests.exactly_once import committed, environment, expected
from tests.runtime.faults import build_gated, open_gate
from tests.runtime.jobs import eventually

ROOT = Path(__file__).resolve().parents[2]

#: Runs the job and stops itself, once, at the moment that is patched in.
DRIVER = """
import os, pathlib, signal, sys; sys.path[:0] = [{root!r}]
import headgate as hg
from headgate.connectors import file_sink
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
build_gated(environment(folder, hg.LocalDeployment(2, processes={processes})), folder).execute(resume="latest-if-any")
"""
#: Each is between the look whether the job is still one's own, and what is done then.
MOMENTS = {
    "while metadata is stored": "checkpoint_storage.store = stopping(checkpoint_storage.store, 3)",
    "before a file is shown": "file_sink._show = stopping(file_sink._show, 1)",
    "before the sink looks": "file_sink.FileSink.commit = stopping(file_sink.FileSink.commit, 3)",
}


@contextmanager
def driver(folder: Path, patch: str, processes: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Another program that runs the job, and has stopped itself."""
    program = DRIVER.format(root=str(ROOT), folder=str(folder), patch=patch, processes=processes)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    started = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, env=environ)
    try:
        eventually(lambda: psutil.Process(started.pid).status() == psutil.STATUS_STOPPED, 120)
        yield started
    finally:
        if started.poll() is None:
            started.kill()
            started.communicate()


def completes(folder: Path, owner: int) -> bool:
    """Whether this owner has completed a checkpoint."""
    return any((folder / "checkpoints").glob(f"job/chk-*-{owner}/_metadata"))


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_paused_driver_is_replaced_and_wakes_up(tmp_path: Path, moment: str) -> None:
    with driver(tmp_path, MOMENTS[moment], processes=moment == "before a file is shown") as paused:
        job = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async(
            resume="latest-if-any"
        )
        eventually(lambda: completes(tmp_path, 2), 120)
        paused.send_signal(signal.SIGCONT)
        _, said = paused.communicate(timeout=120)
    assert paused.returncode == 1
    assert re.search("headgate.errors.Superseded: .*another program took over", said)
    assert f"process {os.getpid()} on" in said
    open_gate(tmp_path)
    job.wait(120)
    assert committed(tmp_path) == expected()
    hidden = [path for path in (tmp_path / "out").iterdir() if path.name.startswith("_part-")]
    assert hidden == []


def test_the_older_of_two_programs_ends_between_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is paused: somebody started the job a second time."""
    monkeypatch.setattr("headgate.runtime.checkpoints.OWNER_CHECK_INTERVAL", 0.05)
    older = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async()
    eventually(lambda: any((tmp_path / "checkpoints").glob("job/chk-*/_metadata")), 60)
    newer = build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path).execute_async(
        resume="latest"
    )
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
