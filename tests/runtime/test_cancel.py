"""Cancelling a job, whatever it is doing: it ends soon and leaves nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from tests.ending import END, within
from tests.runtime.jobs import (
    NUMBERS,
    counted,
    endless,
    environment,
    eventually,
    files_below,
    keyed,
    numbers,
    wait_until_running,
)

#: One test for each state of a job also has the mark `alone`: its bound is tight in `make test`, too.
pytestmark = pytest.mark.ends


def cancelled(job: hg.JobHandle) -> None:
    with within(END):
        job.cancel()
    assert job.status() == "CANCELLED"
    with within(END), pytest.raises(hg.JobCancelled, match="job 'job' was cancelled"):
        job.wait()


@pytest.mark.alone
def test_while_it_runs(processes: bool) -> None:
    env = environment(processes)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job, rows=1000)
    cancelled(job)


@pytest.mark.alone
def test_while_back_pressured(processes: bool) -> None:
    """The sink takes a batch now and then; everything before it stands."""

    def slow(_batch: pa.RecordBatch, _info: object) -> None:
        time.sleep(0.2)

    env = environment(processes, buffer_timeout=0, message_size=1024, segment_size=512)
    keyed(endless(env)).disable_chaining().key_by("n").aggregate(final=False, rows=hg.count()).sink_to(
        hg.sinks.for_each_batch(slow)
    )
    job = env.execute_async()
    eventually(lambda: any(task["soft_backpressured_s"] > 0 for task in job.metrics()["tasks"].values()))
    cancelled(job)


@pytest.mark.alone
def test_while_idle(processes: bool) -> None:
    """One row a minute."""
    env = environment(processes)
    keyed(endless(env, rate=1 / 60)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    cancelled(job)


@pytest.mark.alone
def test_right_after_submit(processes: bool) -> None:
    env = environment(processes)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    assert job.status() in ("CREATED", "RUNNING"), "on a slow machine it may run already"
    cancelled(job)


@pytest.mark.parametrize("delay", [0.0005, 0.002, 0.005, 0.01, 0.02, 0.05])
def test_at_any_moment_of_the_start(delay: float) -> None:
    env = environment(taskmanagers=3, parallelism=3)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    threading.Event().wait(delay)
    cancelled(job)


def test_again_and_from_several_threads(processes: bool) -> None:
    env = environment(processes)
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    with within(END), ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(job.cancel) for _ in range(8)]:
            done.result()
    job.cancel()
    assert job.status() == "CANCELLED"


def test_after_the_end_it_does_nothing(processes: bool) -> None:
    env = environment(processes)
    keyed(counted(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    result = job.wait(30)
    job.cancel()
    assert job.status() == "FINISHED"
    assert job.wait() == result


def test_waiting_with_a_timeout() -> None:
    env = environment()
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async("patience")
    wait_until_running(job)
    with within(END), pytest.raises(TimeoutError, match="job 'patience' is RUNNING after 0.05 s"):
        job.wait(0.05)
    with pytest.raises(TimeoutError):
        job.wait(timeout=0)
    job.cancel()


def test_waiters_hear_of_it() -> None:
    env = environment()
    keyed(endless(env)).sink_to(hg.sinks.null())
    job = env.execute_async()
    wait_until_running(job)
    with ThreadPoolExecutor(2) as threads:
        waiters = [threads.submit(job.wait) for _ in range(2)]
        with within(END):
            job.cancel()
            assert [type(waiter.exception(60)) for waiter in waiters] == [hg.JobCancelled, hg.JobCancelled]


def test_from_a_function_of_the_job_itself() -> None:
    """It cannot wait for its own end, so there `cancel` returns at once."""
    handle: list[hg.JobHandle] = []
    returned = threading.Event()

    def stop(_batch: pa.RecordBatch, _info: object) -> None:
        if handle:
            handle[0].cancel()
            returned.set()

    env = environment()
    keyed(endless(env)).sink_to(hg.sinks.for_each_batch(stop))
    job = env.execute_async()
    handle.append(job)
    with within(END), pytest.raises(hg.JobCancelled) as caught:
        job.wait(30)
    assert returned.is_set()
    assert "did not return" not in caught.value.message


def test_no_window_fires_and_no_file_shows(tmp_path: Path, processes: bool) -> None:
    """DriverConnectors of windows and of files belong to the end of data, which a cancel is not."""
    env = environment(processes)
    rows = hg.sources.generate(numbers, rows=1 << 40, rate=5000, time="ts")
    stream = env.from_source(rows, watermark=hg.Watermark("ts"))
    stream.key_by("n").window(hg.tumble("1 h")).aggregate(rows=hg.count()).sink_to(hg.sinks.csv(tmp_path / "windows"))
    stream.sink_to(hg.sinks.parquet(tmp_path / "rows"))
    job = env.execute_async()
    wait_until_running(job, rows=100)
    cancelled(job)
    assert files_below(tmp_path) == []


def test_collect_with_a_limit_cancels_the_rest(processes: bool) -> None:
    env = environment(processes)
    with within(END + 25 * processes):
        assert endless(env).collect(limit=10).num_rows == 10


def test_an_interrupt_while_execute_waits(tmp_path: Path) -> None:
    """Ctrl-C in a program or a notebook."""
    env = environment()
    reached = threading.Event()

    def mark(batch: pa.RecordBatch) -> pa.RecordBatch:
        reached.set()
        return batch

    counted(env, rows=1 << 40).map_batches(mark, schema=NUMBERS).sink_to(hg.sinks.csv(tmp_path / "out"))
    interrupter = threading.Thread(target=_interrupt_after, args=(reached.wait,))
    interrupter.start()
    with within(END), pytest.raises(KeyboardInterrupt):
        env.execute()
    interrupter.join()
    assert files_below(tmp_path) == []


def _interrupt_after(wait: Callable[[], object]) -> None:
    wait()
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class FullAtRestart(hg.LocalDeployment):
    """Of which only the first start finds room."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()
        self._began = False

    def reserve(
        self, taskmanagers: int, config: hg.Config, slots: int, cancelled: threading.Event
    ) -> AbstractContextManager[None]:
        if self._began:
            self.waits.set()
            assert cancelled.wait(60)
        self._began = True
        return nullcontext()


@pytest.mark.alone
def test_while_it_waits_for_slots_to_start_again(tmp_path: Path) -> None:
    def fails(_batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("once")

    deployment = FullAtRestart()
    env = hg.StreamEnvironment(config=hg.Config(checkpoint_dir=tmp_path / "checkpoints"), deployment=deployment)
    endless(env).map_batches(fails, schema=NUMBERS).sink_to(hg.sinks.null())
    job = env.execute_async()
    assert deployment.waits.wait(60)
    cancelled(job)
