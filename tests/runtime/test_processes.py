"""TaskManagers as processes: killed, stopped, orphaned, and plans that cannot get there."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from tests.ending import END, within
from tests.runtime.jobs import (
    NUMBERS,
    counted,
    endless,
    environment,
    error_of,
    eventually,
    files_below,
    keyed,
    pids,
    said_by,
    wait_until_running,
)


def start(**options: Any) -> hg.JobHandle:
    env = environment(processes=True, **options)
    keyed(endless(env)).sink_to(hg.sinks.null())
    return env.execute_async("job")


@pytest.mark.alone
@pytest.mark.parametrize("index", [0, 1])
def test_a_killed_process_is_named(index: int) -> None:
    job = start()
    wait_until_running(job)
    pid = pids()[index]
    with within(END):
        os.kill(pid, signal.SIGKILL)
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    where = f"TaskManager {index} (process {pid} on 127.0.0.1)"
    assert said_by(error) == f"{where} was lost: process {pid} was killed by SIGKILL"
    assert (error.job, job.status()) == ("job", "FAILED")


@pytest.mark.ends
def test_one_of_three_processes_is_killed(tmp_path: Path) -> None:
    """Two peers see it; the error is still about the one that was killed. Nothing is left in the sink's folder."""
    env = environment(processes=True, taskmanagers=3, parallelism=3)
    keyed(endless(env)).sink_to(hg.sinks.for_each_batch(lambda batch, info: None))
    endless(env, rate=10_000).sink_to(hg.sinks.csv(tmp_path / "out"))
    with pytest.raises(hg.PlanError, match="has no end"):
        env.execute("files of a source without end")

    env = environment(processes=True, taskmanagers=3, parallelism=3)
    keyed(counted(env, rows=1 << 40)).sink_to(hg.sinks.parquet(tmp_path / "out"))
    job = env.execute_async()
    wait_until_running(job)
    pid = pids()[1]
    with within(END):
        os.kill(pid, signal.SIGKILL)
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert f"TaskManager 1 (process {pid}" in error.message
    assert "SIGKILL" in error.message
    assert files_below(tmp_path) == []


@pytest.mark.ends
def test_a_process_that_is_terminated() -> None:
    job = start()
    wait_until_running(job)
    with within(END):
        os.kill(pids()[0], signal.SIGTERM)
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert "SIGTERM" in error.message


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_a_function_that_ends_its_process(code: int) -> None:
    """Whatever code it takes, ours are not among those in use."""

    def leave(_batch: pa.RecordBatch) -> pa.RecordBatch:
        os._exit(code)

    env = environment(processes=True, taskmanagers=1)
    endless(env).map_batches(leave, schema=NUMBERS).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.TaskManagerLost
    assert f"ended with exit code {code}, as after os._exit({code})" in error.message


@pytest.mark.alone
def test_a_stopped_process_is_missed() -> None:
    job = start(heartbeat_timeout=3.0)
    wait_until_running(job)
    pid = pids()[1]
    with within(3.0 + END):
        os.kill(pid, signal.SIGSTOP)
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert said_by(error) == f"TaskManager 1 (process {pid} on 127.0.0.1) was lost: no heartbeat for 3 s"


@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_killed_before_it_registers(number: signal.Signals) -> None:
    job = start()
    pid = eventually(lambda: pids().get(1))
    with within(END):
        os.kill(pid, number)
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert error.message == f"TaskManager 1 was lost: process {pid} was killed by {number.name}"


def test_processes_that_start_too_late() -> None:
    """None of them can have loaded its modules by then."""
    error = error_of(start(registration_timeout="1 ms"))
    assert type(error) is hg.TaskManagerLost
    late = "TaskManager 0, TaskManager 1 did not register within 0.001 s (registration_timeout) on "
    assert error.message.startswith(late)


@pytest.mark.ends
def test_a_large_plan_for_a_process_that_dies_at_once() -> None:
    """The pipe breaks while the plan is being written to it."""
    ballast = os.urandom(4 << 20)
    env = environment(processes=True, taskmanagers=1)
    endless(env).map_batches(lambda batch: batch if ballast else None, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    pid = eventually(lambda: pids().get(0))
    with within(END):
        os.kill(pid, signal.SIGKILL)
        error = error_of(job)
    assert type(error) is hg.TaskManagerLost
    assert "SIGKILL" in error.message


def test_a_function_that_cannot_travel() -> None:
    lock = threading.Lock()

    def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    env = environment(processes=True)
    endless(env).map_batches(locked, schema=NUMBERS).name("guard").sink_to(hg.sinks.null())
    with pytest.raises(hg.PlanError) as caught:
        env.execute("job")
    assert (caught.value.job, caught.value.operator) == ("job", "guard")
    assert caught.value.message.startswith("it cannot be sent to another process: cannot pickle '_thread.lock' object;")
    assert caught.value.message.endswith(
        "; or run the job in threads of this process: deployment=hg.LocalDeployment(processes=False)"
    )
    assert pids() == {}


class Unwelcome:
    """Can be sent, and cannot be received."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("no_such_module",)


def test_a_function_that_cannot_be_loaded() -> None:
    unwelcome = Unwelcome()
    env = environment(processes=True)
    endless(env).map_batches(lambda batch: unwelcome and batch, schema=NUMBERS).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.PlanError
    assert "No module named 'no_such_module'" in error.message
    assert "must be installed there" in error.message
