"""A user's function that does not return: named, killed with its process, or left behind in its daemon thread."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headgate as hg
from headgate.connectors.connector import Sink, SinkWriter, WriterContext
from headgate.runtime.deployment import Gang, OnExit, TaskManagerSpec
from tests.conftest import WatchedPool
from tests.ending import END, within
from tests.runtime.jobs import NUMBERS, endless, environment, error_of, eventually, keyed, pids, said_by

pytestmark = pytest.mark.ends


class Trap:
    """Holds every function that steps into it until the test is over."""

    def __init__(self) -> None:
        self.opens = threading.Event()
        self.entered = threading.Event()

    def enter(self) -> None:
        self.entered.set()
        self.opens.wait(60)


@pytest.fixture
def trap() -> Iterator[Trap]:
    """What it holds may go on at the end of the test, and then has to end by itself."""
    trap, before = Trap(), set(threading.enumerate())
    yield trap
    trap.opens.set()
    eventually(lambda: not set(threading.enumerate()) - before)
    WatchedPool.alive.clear()  # the memory of a task that was left behind goes with its last reference


LEFT = "did not return when the job ended; its daemon thread is left running)"
KILLED = "did not return when the job ended; its process was killed)"


def test_a_map_function_in_a_thread(trap: Trap) -> None:
    def hang(batch: pa.RecordBatch) -> pa.RecordBatch:
        trap.enter()
        return batch

    env = environment()
    source = endless(env).set_parallelism(1)
    source.map_batches(hang, schema=NUMBERS).name("hang").sink_to(hg.sinks.null())
    job = env.execute_async()
    assert trap.entered.wait(30)
    with within(END):
        job.cancel()
    assert job.status() == "CANCELLED"
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    assert caught.value.message.startswith("job 'job' was cancelled (the user function of hang[")
    assert caught.value.message.endswith(LEFT)


def test_a_sink_that_hangs_when_it_is_opened(trap: Trap) -> None:
    """Nothing has started yet: the job waits for all operators to be open."""

    class Jammed(Sink):
        def writer(self, context: WriterContext) -> SinkWriter:
            trap.enter()
            raise AssertionError("too late")

    env = environment()
    endless(env).sink_to(Jammed()).set_parallelism(1)
    job = env.execute_async()
    assert trap.entered.wait(30)
    assert job.status() == "CREATED"
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    assert caught.value.message.endswith(f"(the user function of jammed[0] {LEFT}")


def test_another_functions_error_stays_the_error(trap: Trap) -> None:
    """One subtask fails while another never returns: the first is why, the second is told beside it."""

    def hang_or_fail(_batch: pa.RecordBatch, info: Any) -> None:
        if info.subtask == 0:
            trap.enter()
        elif trap.entered.is_set():
            raise ValueError("no")

    env = environment()
    endless(env).sink_to(hg.sinks.for_each_batch(hang_or_fail))
    with within(END):
        error = error_of(env.execute_async())
    assert type(error) is hg.UserFunctionError
    assert (error.operator, error.subtask) == ("for_each_batch", 1)
    assert said_by(error).endswith(f"(the user function of for_each_batch[0] {LEFT}")


def test_an_iterator_in_a_thread(trap: Trap) -> None:
    """It runs on a thread of its own, so the task ends, but it does not."""

    def batches(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([1], pa.int64())})
        trap.enter()

    env = environment()
    source = hg.sources.iterable(batches, schema=NUMBERS, bounded=False)
    keyed(env.from_source(source).name("tape").set_parallelism(1)).sink_to(hg.sinks.null())
    job = env.execute_async()
    assert trap.entered.wait(30)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    assert caught.value.message.endswith(f"(the user function of tape[0] {LEFT}")


def test_a_filter_in_a_process(tmp_path: Path) -> None:
    """The process is killed: nothing of it is left."""
    marker = tmp_path / "entered"

    def hang(_batch: pa.RecordBatch) -> Any:
        marker.touch()
        while True:
            threading.Event().wait(1)

    env = environment(processes=True)
    endless(env).filter(hang).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(marker.exists)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    assert "(the user function of filter[" in caught.value.message
    assert caught.value.message.endswith(KILLED)
    assert pids() == {}


def test_a_function_that_holds_the_interpreter_lock(tmp_path: Path) -> None:
    """Such a process cannot even say so; the driver kills it."""
    marker = tmp_path / "entered"

    def hold(_batch: pa.RecordBatch) -> Any:
        import ctypes

        marker.touch()
        ctypes.PyDLL(None).sleep(600)

    env = environment(processes=True, taskmanagers=1)
    endless(env).map_batches(hold, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(marker.exists)
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    assert "TaskManager 0 (process" in caught.value.message
    assert caught.value.message.endswith("did not end within 3 s and was killed)")
    assert pids() == {}


class Mute(hg.LocalDeployment):
    """Never says that a process has ended, and takes long to kill one."""

    gang: Gang

    def launch(self, spec: TaskManagerSpec, count: int, on_exit: OnExit) -> Gang:
        self.gang = super().launch(spec, count, lambda index, reason: None)
        return _SlowGang(self.gang)  # type: ignore[return-value]


class _SlowGang:
    can_kill = True

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    def cancel(self) -> None: ...

    def join(self, timeout: float) -> bool:
        return self._gang.join(timeout)


def test_an_iterator_that_sleeps_when_the_job_has_ended_well(caplog: pytest.LogCaptureFixture) -> None:
    def asleep(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], schema=NUMBERS)
        time.sleep(60)

    env = environment(processes=True, taskmanagers=1, parallelism=1)
    env.from_source(hg.sources.iterable(asleep, NUMBERS, bounded=False)).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: job.metrics()["operators"].get("iterable", {}).get("rows_out") == 1)
    with within(END):
        job.stop(drain=True)
    assert job.wait().rows_out == 1
    eventually(lambda: caplog.messages)
    [told] = caplog.messages
    assert told.startswith(
        "job 'job' has ended well: the user function of iterable[0] did not return when it ended, so "
        "TaskManager 0 (process "
    )
    assert told.endswith("was killed")


def test_a_process_is_lost_while_a_function_in_another_holds_the_interpreter_lock(tmp_path: Path) -> None:
    """All that is waited for then comes to less than the end may take."""
    holding = tmp_path / "holding"

    def hold(batch: pa.RecordBatch) -> Any:
        import ctypes
        import os

        with suppress(FileExistsError), holding.open("x") as file:
            file.write(str(os.getpid()))
            file.flush()
            ctypes.PyDLL(None).sleep(600)
        return batch

    deployment = Mute(2, processes=True)
    env = hg.StreamEnvironment(parallelism=2, deployment=deployment)
    endless(env, rate=1000).map_batches(hold, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    holder = int(eventually(lambda: holding.exists() and holding.read_text()))
    index, other = next(item for item in pids().items() if item[1] != holder)
    try:
        with within(END):
            os.kill(other, signal.SIGKILL)
            error = error_of(job)
        assert type(error) is hg.TaskManagerLost
        assert f"TaskManager {index} (process {other}" in error.message
        assert "was killed)" in error.message
    finally:
        deployment.gang.cancel()


def test_a_busy_function_that_does_return(processes: bool) -> None:
    """Batches of a tenth of a second are no reason to kill or to complain."""

    def burn(batch: pa.RecordBatch) -> pa.RecordBatch:
        for _ in range(20):
            pc.sum(pa.array(range(20_000)))
        return batch

    env = environment(processes)
    endless(env).map_batches(burn, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    eventually(lambda: job.status() != "CREATED" and job.metrics()["rows_in"])
    with within(END):
        job.cancel()
    with pytest.raises(hg.JobCancelled) as caught:
        job.wait()
    assert caught.value.message == "job 'job' was cancelled"
