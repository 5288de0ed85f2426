"""Whole jobs with the back-pressure of other systems: a stalled sink stops its source, and every row arrives."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.lab.flows import Flow, Flows, by_target
from headgate.lab.probe import Probe, Stall
from headgate.throttle.mechanism import Mechanism
from tests.runtime.jobs import NUMBERS, counted, environment, eventually, keyed, numbers, pid_of, wait_until_running

T = hg.throttle
#: Each batch of a source is one message.
EACH: dict[str, Any] = {"flow_control": "unbounded", "buffer_timeout": 0}
MECHANISMS: dict[str, Mechanism] = {
    "StormStatus": T.StormStatus(receive_buffer=20),
    "JStormStages": T.JStormStages(receive_buffer=20, sender_cache=4096),
    "JStormMaster": T.JStormMaster(receive_buffer=20, check_interval=0.01, samples=2),
    "HeronSpout": T.HeronSpout(high=16384, low=8192),
    "MaxPending": T.MaxPending(20),
}
ROWS, BATCH = 64_000, 64


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("taskmanagers", [1, 2])
def test_a_stalled_sink_stops_its_source_until_it_goes_on(name: str, taskmanagers: int) -> None:
    """The sink takes 20 ms for a batch, and holds the third until its source has waited for half a second."""
    env = environment(taskmanagers=taskmanagers, parallelism=2, throttle=MECHANISMS[name], **EACH)
    goes_on, batches = threading.Event(), itertools.count(1)

    def write(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        if next(batches) <= 2 * env.parallelism:
            threading.Event().wait(0.02)
        else:
            assert goes_on.wait(60)

    source = hg.sources.generate(numbers, rows=ROWS, batch_rows=BATCH, rate=ROWS // 2)
    env.from_source(source).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(write))
    job = env.execute_async()
    waited = eventually(lambda: job.status() == "FAILED" or _throttled(job) > 0.5)
    read = job.metrics()["rows_in"]
    goes_on.set()
    result = job.wait(60)
    assert waited
    assert read < ROWS, "a source that nothing stops has read all rows after two seconds"
    assert result.rows_in == result.rows_out == ROWS
    assert result.metrics["throttle_signals"] >= 2 or taskmanagers == 1  # at least a stop and a start


def test_a_full_queue_of_jstorm_master_blocks_its_senders() -> None:
    """With tcp, as in JStorm 2.1. No sample is taken, so no source sleeps. The rows have four times the size of all
    network memory, which is also the most that may wait in a queue."""
    env = environment(
        taskmanagers=2,
        throttle=T.JStormMaster(receive_buffer=20, check_interval=3600.0),
        flow_control="tcp",
        buffer_timeout=0,
        network_memory="4 MiB",
    )

    def write(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        threading.Event().wait(0.001)

    source = hg.sources.generate(numbers, rows=2_000_000, batch_rows=4096)
    env.from_source(source).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(write))
    job = env.execute_async()
    result = job.wait(60)
    assert result.rows_in == result.rows_out == 2_000_000


def _throttled(job: hg.JobHandle, which: Callable[..., float] = max) -> float:
    """Return for how long the subtask of the source has waited that has waited longest, or shortest with `min`."""
    tasks = job.metrics()["tasks"]
    return float(which((task["throttle_wait_s"] for name, task in tasks.items() if "numbers" in name), default=0.0))


#: Few messages each second, so that a busy machine does not fill the queues of a stream that goes on.
APART: dict[str, Mechanism] = {
    "StormStatus": T.StormStatus(receive_buffer=30),
    "JStormStages": T.JStormStages(receive_buffer=30),
    "MaxPending": T.MaxPending(30),
}


@pytest.mark.parametrize("name", APART)
def test_an_independent_stream_of_the_same_connection_goes_on(name: str) -> None:
    """A.1 sends to B.3 and A.2 to B.4, over one connection. B.4 stalls until the end, much longer than a slow machine
    holds up B.3."""
    probe = Probe({3: Stall(after=0.2, seconds=3.0)})
    env = environment(True, parallelism=4, throttle=APART[name], **EACH)
    flows = Flows({0: Flow((1,), 5000, batch_rows=50), 2: Flow((3,), 5000, batch_rows=50)}, 1.0)
    env.from_source(flows).partition_by(by_target).sink_to(probe)
    result = env.execute()
    assert result.rows_in == result.rows_out == 10_000
    tasks = result.metrics["tasks"]
    assert tasks["flows[2]"]["throttle_wait_s"] > 0.3
    assert tasks["flows[0]"]["throttle_wait_s"] < tasks["flows[2]"]["throttle_wait_s"] / 2


def test_checkpoints_and_a_cancel_do_not_wait_for_a_throttle(tmp_path: Path) -> None:
    env = environment(throttle=MECHANISMS["StormStatus"], checkpoint_dir=tmp_path, checkpoint_interval=0.05, **EACH)

    def slowly(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        threading.Event().wait(0.005)

    counted(env, 10 * ROWS).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(slowly))
    job = env.execute_async()
    eventually(lambda: _throttled(job) > 0.3)
    done = len(job.checkpoints())
    eventually(lambda: len(job.checkpoints()) > done)
    wait_until_running(job)
    job.cancel()
    with pytest.raises(hg.JobCancelled):
        job.wait(30)


@pytest.mark.parametrize("name", ["StormStatus", "HeronSpout", "JStormStages", "JStormMaster"])
@pytest.mark.parametrize("taskmanagers", [1, 2])
def test_a_throttle_stops_its_source_while_barriers_wait_in_a_queue(
    name: str, taskmanagers: int, tmp_path: Path
) -> None:
    """The first barrier comes before the queue is full, and waits there until the source has waited for its throttle.
    A failure behind a checkpoint must not change how often a row counts. The full queue of `JStormMaster` stops its
    connection, and must still let barriers in."""
    env = environment(
        taskmanagers=taskmanagers,
        throttle=MECHANISMS[name],
        checkpoint_dir=tmp_path,
        checkpoint_interval=0.05,
        restart=hg.restart.fixed(1, 0),
        **(EACH | {"flow_control": "tcp"} if name == "JStormMaster" else EACH),
    )
    goes_on, failures = threading.Event(), threading.Semaphore(1)
    jobs: list[hg.JobHandle] = []

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert goes_on.wait(60)
        if jobs and jobs[0].checkpoints() and failures.acquire(blocking=False):
            raise OSError("once")
        return batch

    rows, collected = 160 * BATCH, hg.sinks.collect()
    source = hg.sources.generate(numbers, rows=rows, batch_rows=BATCH, rate=40 * BATCH, batch_time=1)
    stream = env.from_source(source).name("numbers").rebalance().map_batches(slowly, schema=NUMBERS)
    stream.sink_to(collected)
    job = env.execute_async()
    jobs.append(job)
    try:
        eventually(lambda: job.status() == "FAILED" or _throttled(job) > 0.3)
        assert job.checkpoints() == []
    finally:
        goes_on.set()
    result = job.wait(200)
    assert result.restarts == 1
    assert sorted(collected.to_table()["n"].to_pylist()) == list(range(rows))


def test_a_killed_taskmanager_takes_its_announcement_with_it(tmp_path: Path) -> None:
    """In Heron, a lost connection counts as relief. Here the sources of the next attempt know of no announcement."""
    env = environment(
        True,
        throttle=MECHANISMS["HeronSpout"],
        checkpoint_dir=tmp_path / "checkpoints",
        checkpoint_interval=3600,
        restart=hg.restart.fixed(1, 0),
        **EACH,
    )
    goes_on = tmp_path / "goes-on"

    def hold(batch: pa.RecordBatch) -> pa.RecordBatch:
        while not goes_on.exists():
            threading.Event().wait(0.01)
        return batch

    collected = hg.sinks.collect()
    source = hg.sources.generate(numbers, rows=ROWS, batch_rows=BATCH, rate=ROWS // 2)
    env.from_source(source).name("numbers").rebalance().map_batches(hold, schema=NUMBERS).sink_to(collected)
    job = env.execute_async()
    eventually(lambda: job.status() == "FAILED" or _throttled(job) > 0.3)
    os.kill(pid_of(job, 1), signal.SIGKILL)
    goes_on.touch()
    result = job.wait(200)
    assert result.restarts == 1
    assert sorted(collected.to_table()["n"].to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize(("name", "taskmanagers"), [("StormStatus", 1), ("StormStatus", 2), ("JStormMaster", 2)])
def test_a_quick_branch_waits_on_disk_for_the_barrier_of_a_slow_one(
    name: str, taskmanagers: int, tmp_path: Path
) -> None:
    """The barrier of the slow branch comes when the quick one has sent more than may wait in a queue."""
    memory = 4 << 20
    env = environment(
        taskmanagers=taskmanagers,
        throttle=MECHANISMS[name],
        network_memory=memory,
        segment_size=4096,
        checkpoint_dir=tmp_path,
        checkpoint_interval=0.1,
        **(EACH | {"flow_control": "tcp"} if name == "JStormMaster" else EACH),
    )
    goes_on = threading.Event()

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert goes_on.wait(60)
        return batch

    rows = 1 << 21
    quick = env.from_source(hg.sources.generate(numbers, rows=rows, batch_rows=4096, rate=rows // 4)).name("quick")
    slow = counted(env, 1000).rebalance().map_batches(slowly, schema=NUMBERS)
    quick.union(slow).rebalance().sink_to(hg.sinks.null())
    job = env.execute_async()
    try:
        eventually(lambda: job.status() == "FAILED" or _spilled(job) > memory)
    finally:
        goes_on.set()
    result = job.wait(60)
    assert result.rows_out == rows + 1000
    assert result.restarts == 0


def _spilled(job: hg.JobHandle) -> int:
    tasks = job.metrics()["tasks"]
    return min((task["alignment_spilled_bytes"] for name, task in tasks.items() if name.startswith("null")), default=0)


def test_a_mechanism_over_credit_must_be_asked_for() -> None:
    with pytest.raises(hg.ConfigError, match=r"two mechanisms at once: use .* StormStatus\(..., over_credit=True"):
        hg.Config(throttle=T.StormStatus())
    assert hg.Config(throttle=T.StormStatus(over_credit=True)).throttle is not None
    with pytest.raises(hg.ConfigError, match="over_credit=True, which needs flow_control='credit'"):
        hg.Config(throttle=T.StormStatus(over_credit=True), flow_control="tcp")
    with pytest.raises(hg.ConfigError, match="execution_mode='batch'"):
        hg.Config(throttle=T.HeronSpout(), flow_control="unbounded", execution_mode="batch")


@pytest.mark.parametrize("name", [*MECHANISMS, "StormZooKeeper", "SparkPid"])
def test_a_mechanism_that_limits_a_whole_job_is_none_for_one_source(name: str) -> None:
    """`MaxPending`, for example, limits sources as well. The error must not say that it limits none."""
    mechanism = {"StormZooKeeper": T.StormZooKeeper(), "SparkPid": T.SparkPid(batch_interval=1), **MECHANISMS}[name]
    env = hg.StreamEnvironment()
    says = rf"throttle={name}\(.*\) limits a whole job, not one source: give it as hg.Config\(throttle=...\)"
    with pytest.raises(hg.PlanError, match=says):
        env.from_source(hg.sources.iterable([[{"n": 1}]]), throttle=mechanism)


@pytest.mark.parametrize("aligned_timeout", [0, 1])
def test_a_mechanism_with_a_queue_refuses_barriers_that_overtake(tmp_path: Path, aligned_timeout: float) -> None:
    """The rows in its queue would be in no checkpoint."""
    options: dict[str, Any] = {"checkpoint_dir": tmp_path, "unaligned": True, "aligned_timeout": aligned_timeout}
    queued = T.StormStatus, T.JStormStages, T.JStormMaster, T.HeronSpout, T.StormZooKeeper
    for mechanism in queued:
        with pytest.raises(hg.ConfigError, match="with unaligned=True would lose rows after a restart"):
            hg.Config(throttle=mechanism(over_credit=True), **options)
    for other in T.MaxPending(acking=False, over_credit=True), T.FixedRate(10):
        assert hg.Config(throttle=other, **options).unaligned


def test_the_mark_of_heron_must_be_below_the_memory_of_its_queues() -> None:
    with pytest.raises(hg.ConfigError, match="network_memory=67108864 bytes .* high=104857600 .* set network_memory"):
        hg.Config(throttle=T.HeronSpout(), flow_control="unbounded")
    with pytest.raises(hg.ConfigError, match="could never stop a source"):
        hg.Config(throttle=T.HeronSpout(over_credit=True), network_memory="100 mb")
    assert hg.Config(throttle=T.HeronSpout(), flow_control="unbounded", network_memory="128 mb").throttle is not None


def test_a_source_that_may_send_messages_again_has_no_checkpoints_and_its_messages_are_whole(tmp_path: Path) -> None:
    with pytest.raises(hg.ConfigError, match="a job with checkpoint_dir must not double any"):
        hg.Config(throttle=T.MaxPending(10), checkpoint_dir=tmp_path, **EACH)
    with pytest.raises(hg.ConfigError, match="needs buffer_timeout=0"):
        hg.Config(throttle=T.MaxPending(10), flow_control="unbounded")
    assert hg.Config(throttle=T.MaxPending(acking=False), checkpoint_dir=tmp_path, **EACH).throttle is not None


def _twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.concat_arrays([batch["n"], batch["n"]])], names=["n"])


def test_a_message_counts_until_all_that_came_from_it_is_processed() -> None:
    """Each batch goes through two exchanges, and to two subtasks: at most three are under way."""
    env = environment(True, throttle=T.MaxPending(3), **EACH)
    stream = counted(env, 6400).name("numbers").rebalance().map_batches(_twice, schema=NUMBERS)
    result_rows = stream.partition_by(lambda batch, n: batch["n"].to_numpy() % n).collect()
    assert sorted(result_rows["n"].to_pylist()) == sorted([*range(6400), *range(6400)])


def _read_while_the_last_sink_holds(made: Callable[[int, int], pa.RecordBatch]) -> int:
    """Run a job with two exchanges, of which three messages of each source subtask may be under way. Return the rows
    that its source has read when both subtasks wait, or more rows than may be under way."""
    env = environment(throttle=T.MaxPending(3), **EACH)
    goes_on = threading.Event()

    def write(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        assert goes_on.wait(60)

    source = hg.sources.generate(made, rows=100 * BATCH, batch_rows=BATCH, schema=NUMBERS)
    stream = env.from_source(source).name("numbers").rebalance().map_batches(_twice, schema=NUMBERS)
    stream.partition_by(lambda batch, n: batch["n"].to_numpy() % n).sink_to(hg.sinks.for_each_batch(write))
    job = env.execute_async()
    try:
        eventually(lambda: job.metrics()["rows_in"] > 6 * BATCH or _throttled(job, min) > 0.3)
        read: int = job.metrics()["rows_in"]
    finally:
        goes_on.set()
    assert job.wait(60).rows_out == 200 * BATCH
    return read


def test_a_message_counts_also_behind_the_second_exchange() -> None:
    """If it counted until the first one only, the source would read on while the sink holds."""
    assert _read_while_the_last_sink_holds(numbers) == 2 * 3 * BATCH


def test_a_function_that_seeds_random_numbers_does_not_choose_the_ids_of_messages() -> None:
    """Messages with equal ids would count as one, and end each other's trees."""

    def made(start: int, n: int) -> pa.RecordBatch:
        random.seed(0)
        return numbers(start, n)

    before = random.getstate()
    try:
        assert _read_while_the_last_sink_holds(made) == 2 * 3 * BATCH
    finally:
        random.setstate(before)


def test_the_times_of_batches_set_the_rate_of_their_sources() -> None:
    """At its first rate, each source would need 32 s. Each later one is at least 3200 rows/s: a second."""
    env = environment(True, throttle=T.SparkPid(batch_interval=0.1, initial_rate=100, min_rate=3200), **EACH)

    def write(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        threading.Event().wait(0.002)  # a batch that takes no time gives no rate

    counted(env, 6400).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(write))
    result = env.execute()
    assert result.rows_in == result.rows_out == 6400
    assert any(task["throttle_wait_s"] > 0.1 for name, task in result.metrics["tasks"].items() if "numbers" in name)
    assert result.duration_s < 16


@pytest.mark.parametrize("storage", ["memory", "memory_and_disk"])
def test_rows_that_wait_for_their_batch_fill_the_memory_or_go_to_disk(storage: Any, tmp_path: Path) -> None:
    """Two subtasks read 1 MiB each before their first batch is released, and may have half of that in memory."""
    env = environment(
        taskmanagers=1,
        throttle=T.SparkPid(batch_interval=0.5, storage=storage),
        network_memory=1 << 19,
        segment_size=4096,
        spill_dir=str(tmp_path),
        **EACH,
    )
    job = env.from_source(hg.sources.generate(numbers, rows=1 << 18, batch_rows=1024, schema=NUMBERS)).collect
    if storage == "memory":
        with pytest.raises(hg.NetworkMemoryFull, match='storage="memory_and_disk"'):
            job()
    else:
        assert sorted(job()["n"].to_pylist()) == list(range(1 << 18))
    assert list(tmp_path.iterdir()) == []


def test_event_time_and_windows_go_through_batches() -> None:
    """Watermarks keep their place between the rows, and the end of the source comes last."""
    env = environment(throttle=T.SparkPid(batch_interval=0.02, initial_rate=100_000), **EACH)
    assert keyed(counted(env, 5000)).collect().num_rows == 5000


def test_no_source_has_a_throttle_of_its_own_beside_batches() -> None:
    """A batch waits for all sources, and such a source would report none."""
    env = environment(throttle=T.SparkPid(batch_interval=0.1), **EACH)
    with pytest.raises(hg.PlanError, match=r"FixedRate\(.*\) would take the source out of the batches of SparkPid"):
        env.from_source(hg.sources.generate(numbers, rows=10), throttle=T.FixedRate(10))


def test_batches_leave_no_room_for_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(hg.ConfigError, match="closes its batches with barriers of its own"):
        hg.Config(throttle=T.SparkPid(batch_interval=1), checkpoint_dir=tmp_path, flow_control="unbounded")


def test_over_credit_a_mechanism_stops_sources_as_well() -> None:
    env = environment(taskmanagers=1, throttle=T.StormStatus(receive_buffer=2, over_credit=True), buffer_timeout=0)

    def slowly(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        threading.Event().wait(0.002)

    counted(env, 6400).name("numbers").rebalance().sink_to(hg.sinks.for_each_batch(slowly))
    result = env.execute()
    assert result.rows_out == 6400
    assert any(task["throttle_wait_s"] > 0 for name, task in result.metrics["tasks"].items() if "numbers" in name)
