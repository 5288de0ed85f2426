"""Each fault at its very moment, in a job of two keyed exchanges, windows and files: its rows are there, each once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import headgate as hg
from headgate.connectors.connector import Sink
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from headgate.runtime.taskmanager import data_links, state_upload
from headgate.transport import sockets
from tests.exactly_once import ROWS, SMALL, STEP, Function, attempts, build, committed, environment, expected
from tests.runtime.faults import (
    Commit,
    Pull,
    build_gated,
    committing,
    cuts_connections,
    fills_the_disk,
    gated,
    holds,
    holds_rows,
    holds_uploads,
    kill,
    let_go,
    open_gate,
    taken_by,
)
from tests.runtime.jobs import eventually, pid_of, port_of, ports

ROOT = Path(__file__).parents[2]


def start(
    folder: Path,
    *pulls: Pull,
    deployment: hg.LocalDeployment | None = None,
    middle: Function | None = None,
    sink: Sink | None = None,
    **options: Any,
) -> hg.JobHandle:
    """Two processes, and a restart at once."""
    options = {"restart": hg.restart.fixed(9, delay=0), **options}
    env = environment(folder, deployment or hg.LocalDeployment(2, processes=True), **options)
    return build(env, folder, source=gated(folder, *pulls), middle=middle, sink=sink, branch=True).execute_async()


def until_a_checkpoint_of(job: hg.JobHandle, folder: Path, attempt: int) -> None:
    eventually(lambda: job.status() == "RUNNING" and attempt in attempts(folder), 60)


def is_as_if_nothing_had_happened(folder: Path) -> None:
    assert committed(folder) == expected()
    assert not [*(folder / "out").glob("_*"), *(folder / "branch").glob("_*")]


def newest(folder: Path) -> Any:
    """What the newest complete checkpoint consists of."""
    files = sorted((folder / "checkpoints").glob("*/chk-*/_metadata"), key=lambda path: int(path.parent.name[4:]))
    return json.loads(files[-1].read_text())["checkpoint"]


def parts_under_way(folder: Path) -> int:
    """How many tasks have stored their part of the checkpoint that is under way."""
    newest = max((folder / "checkpoints").glob("*/chk-*"), key=lambda path: int(path.name[4:]))
    return 0 if (newest / "_metadata").exists() else len(list(newest.glob("*.state")))


@pytest.mark.turns(2)
@pytest.mark.parametrize("unaligned", [False, True])
def test_killed_during_alignment_and_during_an_upload(tmp_path: Path, unaligned: bool) -> None:
    """The first time one source has passed the barrier on and the other stands before it, so the windows wait; the
    second time half of a task's part is written."""
    alignment, upload = tmp_path / "alignment", tmp_path / "upload"
    job = start(tmp_path, holds(alignment), holds_uploads(upload), unaligned=unaligned)
    until_a_checkpoint_of(job, tmp_path, 0)
    alignment.touch()
    held = taken_by(alignment)
    eventually(lambda: parts_under_way(tmp_path), 60)
    kill(next(pid for pid in (pid_of(job, 0), pid_of(job, 1)) if pid != held))
    let_go(alignment)
    until_a_checkpoint_of(job, tmp_path, 1)
    upload.touch()
    uploading = taken_by(upload)
    eventually(upload.with_suffix(".torn").exists, 60)
    assert parts_under_way(tmp_path)
    kill(uploading)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 2
    is_as_if_nothing_had_happened(tmp_path)


def test_killed_between_a_checkpoint_and_its_commit_and_after_it(tmp_path: Path) -> None:
    struck: list[int] = []

    def commit(really: Commit, pending: Sequence[Any]) -> None:
        strikes = len(struck)
        if strikes > 1 or strikes > job.restarts or not any(pending):
            really(pending)
            return
        struck.append(newest(tmp_path)["attempt"])
        if strikes == 0:
            kill(pid_of(job, 0))
        really(pending)
        if strikes == 1:
            kill(pid_of(job, 1))

    job = start(tmp_path, sink=committing(hg.sinks.parquet(tmp_path / "out"), commit))
    eventually(lambda: len(struck) == 2, 120)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 2
    assert struck == [0, 1]
    is_as_if_nothing_had_happened(tmp_path)


def test_a_commit_that_fails_when_it_is_half_done(tmp_path: Path) -> None:
    struck: list[int] = []

    def commit(really: Commit, pending: Sequence[Any]) -> None:
        if struck or not any(pending):
            really(pending)
            return
        struck.append(newest(tmp_path)["attempt"])
        really(pending[:1])
        raise OSError("the other files cannot be shown")

    sink = committing(hg.sinks.parquet(tmp_path / "out"), commit)
    job = start(tmp_path, deployment=hg.LocalDeployment(2, processes=False), sink=sink)
    eventually(lambda: struck, 120)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 1
    is_as_if_nothing_had_happened(tmp_path)


def test_killed_between_the_end_of_data_and_the_last_commit(tmp_path: Path) -> None:
    """First while the sources have ended and the last windows are on their way, then when all tasks have ended and the
    last checkpoint is stored."""
    lever, last, struck = tmp_path / "lever", ROWS * STEP - SMALL, []

    def is_last(batch: pa.RecordBatch) -> bool:
        return bool(batch["window_start"][-1].value >= last)

    def commit(really: Commit, pending: Sequence[Any]) -> None:
        tasks = [task for vertex in newest(tmp_path)["vertices"] for task in vertex["tasks"]]
        if not struck and all("finished" in task for task in tasks):
            struck.append(job.restarts)
            kill(pid_of(job, 0))
        really(pending)

    sink = committing(hg.sinks.parquet(tmp_path / "out"), commit)
    job = start(tmp_path, middle=holds_rows(lever, is_last), sink=sink)
    until_a_checkpoint_of(job, tmp_path, 0)
    lever.touch()
    open_gate(tmp_path)
    victim = taken_by(lever)
    eventually(lambda: job.metrics()["rows_in"] == ROWS, 60)
    kill(victim)
    assert job.wait(120).restarts in (1, 2), "the second time all may have been told already"
    assert struck == [1]
    is_as_if_nothing_had_happened(tmp_path)


def cut(port: int) -> None:
    """Every connection that was accepted at a port of this process; the end of one may end others first."""
    found = [each for each in psutil.Process().net_connections("tcp") if each.laddr.port == port and each.raddr]
    assert found
    for each in found:
        with suppress(OSError), socket.socket(fileno=os.dup(each.fd)) as same:
            same.shutdown(socket.SHUT_RDWR)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("flow_control", "processes"), [("credit", True), ("tcp", False)])
def test_connections_that_are_cut(tmp_path: Path, flow_control: str, processes: bool) -> None:
    """First one between two TaskManagers, then one to the driver."""
    before, lever = ports(), tmp_path / "lever"
    deployment = hg.LocalDeployment(2, processes=processes)
    job = start(tmp_path, cuts_connections(lever), deployment=deployment, flow_control=flow_control)
    until_a_checkpoint_of(job, tmp_path, 0)
    if processes:
        lever.touch()
    else:
        cut(port_of(job, 0))
    until_a_checkpoint_of(job, tmp_path, 1)
    driver = ports() - before - {port_of(job, index) for index in range(2)}
    cut(*driver)
    until_a_checkpoint_of(job, tmp_path, 2)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 2
    is_as_if_nothing_had_happened(tmp_path)


class Relay:
    """Between those who dial and those who were to be dialled; it carries nothing while `flows` is not set."""

    def __init__(self) -> None:
        self.flows = threading.Event()
        self.flows.set()

    def towards(self, address: tuple[str, int]) -> tuple[str, int]:
        """Where to dial instead, once."""
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(60)
        threading.Thread(target=self._join, args=(listener, address), daemon=True).start()
        host, port = listener.getsockname()
        return host, port

    def _join(self, listener: socket.socket, address: tuple[str, int]) -> None:
        with listener:
            near, _ = listener.accept()
        with near, socket.create_connection(address) as far:
            back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
            back.start()
            self._carry(near, far)
            back.join()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.flows.wait()
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("tolerable", [1000, 0])
def test_a_peer_that_stops_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerable: int) -> None:
    """Its link to the driver is alive. That is back-pressure, until a checkpoint takes too long: the job may wait for
    it, or start again."""
    relay = Relay()
    dial = sockets.Dial
    monkeypatch.setattr(
        data_links, "Dial", lambda network, address, **others: dial(network, relay.towards(address), **others)
    )
    options: dict[str, Any] = {"checkpoint_timeout": "1 s", "tolerable_failed_checkpoints": tolerable}
    restart = hg.restart.fixed(1000, delay=0)
    job = start(tmp_path, deployment=hg.LocalDeployment(2, processes=False), restart=restart, **options)
    eventually(lambda: any(each.failure is None for each in job.checkpoints()), 60)
    relay.flows.clear()
    since = job.checkpoints()[-1].checkpoint

    def took_too_long(record: hg.CheckpointRecord) -> bool:
        return record.checkpoint > since + 1 and "(checkpoint_timeout)" in str(record.failure)

    eventually(lambda: job.restarts if tolerable == 0 else any(map(took_too_long, job.checkpoints())), 60)
    relay.flows.set()
    open_gate(tmp_path)
    assert (job.wait(120).restarts == 0) == (tolerable > 0)
    is_as_if_nothing_had_happened(tmp_path)


class CutOff(hg.LocalDeployment):
    """Takes what it cannot reach any more for ended."""

    gang: _CutOffGang

    def __init__(self) -> None:
        super().__init__(2, processes=True)

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        self.gang = _CutOffGang(super().launch(spec, count, on_exit))
        return self.gang  # type: ignore[return-value]


class _CutOffGang:
    can_kill = True

    def __init__(self, gang: Any) -> None:
        self._gang = gang
        self.unreached: int | None = None

    def _reached(self, of_each: list[Any]) -> list[Any]:
        return [each for index, each in enumerate(of_each) if index != self.unreached]

    def cancel(self) -> None:
        for fork in self._reached(self._gang._forks):
            fork.kill()

    def join(self, timeout: float) -> bool:
        watchers = self._reached(self._gang._watchers)
        for watcher in watchers:
            watcher.join(timeout)
        return not any(watcher.is_alive() for watcher in watchers)


def test_a_paused_process_that_comes_back_after_being_replaced(tmp_path: Path) -> None:
    """Meanwhile it reads nothing and says nothing. It is held where it had rows to pass on."""
    deployment, lever = CutOff(), tmp_path / "lever"
    job = start(tmp_path, holds(lever), deployment=deployment, heartbeat_timeout=2.0)
    until_a_checkpoint_of(job, tmp_path, 0)
    lever.touch()
    paused = taken_by(lever)
    deployment.gang.unreached = [pid_of(job, 0), pid_of(job, 1)].index(paused)
    os.kill(paused, signal.SIGSTOP)
    try:
        let_go(lever)
        until_a_checkpoint_of(job, tmp_path, 1)
        assert psutil.Process(paused).status() == psutil.STATUS_STOPPED
    finally:
        os.kill(paused, signal.SIGCONT)
    eventually(lambda: not psutil.pid_exists(paused), 60)
    open_gate(tmp_path)
    assert job.wait(120).restarts >= 1
    is_as_if_nothing_had_happened(tmp_path)


def test_a_disk_that_is_full_at_a_checkpoint(tmp_path: Path) -> None:
    lever = tmp_path / "lever"
    job = start(tmp_path, fills_the_disk(lever), deployment=hg.LocalDeployment(1, processes=True))
    eventually(lambda: attempts(tmp_path) and committed(tmp_path) and not newest(tmp_path)["pending"], 60)
    lever.touch()
    until_a_checkpoint_of(job, tmp_path, 1)
    failures = [record.failure for record in job.checkpoints() if record.failure is not None]
    assert any("cannot be written" in failure and "free some space there" in failure for failure in failures)
    open_gate(tmp_path)
    assert job.wait(120).restarts == 1
    is_as_if_nothing_had_happened(tmp_path)


@pytest.mark.parametrize("timeout", ["10 min", "200 ms"])
def test_slow_storage_holds_up_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: str) -> None:
    """Half of a task's part is written while all rows are read; too late for the checkpoint, or not."""
    monkeypatch.setattr(state_upload, "write_part", state_upload.write_part)  # type: ignore[attr-defined]  # put back at the end
    lever = tmp_path / "lever"
    options: dict[str, Any] = {"checkpoint_timeout": timeout, "tolerable_failed_checkpoints": 1000}
    job = start(tmp_path, holds_uploads(lever), deployment=hg.LocalDeployment(2, processes=False), **options)
    until_a_checkpoint_of(job, tmp_path, 0)
    lever.touch()
    eventually(lever.with_suffix(".torn").exists, 60)
    open_gate(tmp_path)
    eventually(lambda: job.metrics()["rows_in"] == ROWS, 60)
    if timeout == "200 ms":
        eventually(lambda: any("(checkpoint_timeout)" in str(each.failure) for each in job.checkpoints()), 60)
    let_go(lever)
    assert job.wait(120).restarts == 0
    is_as_if_nothing_had_happened(tmp_path)


PROGRAM = """
import os, pathlib, signal, sys; sys.path[:0] = [{root!r}]
import headgate as hg
from tests.exactly_once import environment
from tests.runtime.faults import build_gated, committing

def commit(really, pending):
    if any(pending):
        {moment}
        os.kill(os.getpid(), signal.SIGKILL)
    really(pending)

folder = pathlib.Path({folder!r})
sink = committing(hg.sinks.parquet(folder / "out"), commit)
build_gated(environment(folder, hg.LocalDeployment(2, processes=False)), folder, sink).execute(resume={resume!r})
"""


def test_the_program_is_killed_at_a_commit_and_others_go_on(tmp_path: Path) -> None:
    """Before the commit, in the midst of it, and when it is done."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for number, moment in enumerate(["pass", "really([pending[0][:1]])", "really(pending)"]):
        resume = "latest" if number else None
        program = PROGRAM.format(root=str(ROOT), folder=str(tmp_path), moment=moment, resume=resume)
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, timeout=120)
        assert ran.returncode == -signal.SIGKILL, ran.stderr
    sink = committing(hg.sinks.parquet(tmp_path / "out"), lambda really, pending: really(pending))
    open_gate(tmp_path)
    build_gated(environment(tmp_path, hg.LocalDeployment(2, processes=False)), tmp_path, sink).execute(resume="latest")
    is_as_if_nothing_had_happened(tmp_path)
