"""Jobs under back-pressure. Where barriers overtake, what was in flight is there once, wherever the job goes on; where
they are only counted, none is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.state.checkpoint_metadata import CheckpointMetadata
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.exactly_once import ROWS, Function, build, committed, environment, expected, none_lost, rows, slow
from tests.runtime.faults import Pull, gated, holds_uploads, kill, open_gate, taken_by
from tests.runtime.jobs import eventually, pid_of

PATIENCE = 60.0
SMALL = {"segment_size": 4096, "message_size": 4096}


def latest(folder: Path) -> CheckpointMetadata | None:
    storage = CheckpointStorage(folder / "checkpoints", "job")
    return next((storage.load(checkpoint) for checkpoint in storage.completed()), None)


def holds_rows_in_flight(folder: Path) -> bool:
    metadata = latest(folder)
    return metadata is not None and metadata.in_flight_bytes > ROWS


def pressed(folder: Path, parallelism: int = 2, *pulls: Pull, **options: Any) -> hg.StreamEnvironment:
    env = environment(folder, hg.LocalDeployment(2, processes=True), parallelism, unaligned=True, **SMALL, **options)
    return under_pressure(env, folder, parallelism, *pulls)


def under_pressure(env: hg.StreamEnvironment, folder: Path, parallelism: int = 2, *pulls: Pull) -> hg.StreamEnvironment:
    """Until the gate is open nothing ends, and most rows wait for a slow function."""
    source = gated(folder, *pulls, before=ROWS * 5 // 6 // parallelism)
    return build(env, folder, source=source, middle=slow(0.25, until=folder / "open"), branch=True)


def test_killed_while_data_in_flight_are_half_written(tmp_path: Path) -> None:
    lever = tmp_path / "lever"
    job = pressed(tmp_path, 2, holds_uploads(lever, "in-flight")).execute_async()
    eventually(lambda: holds_rows_in_flight(tmp_path), PATIENCE)
    lever.touch()
    uploading = taken_by(lever)
    eventually(lever.with_suffix(".torn").exists, PATIENCE)
    assert holds_rows_in_flight(tmp_path), "of the checkpoint before, from which the job goes on"
    kill(uploading)
    open_gate(tmp_path)
    result = job.wait(PATIENCE)
    assert committed(tmp_path) == expected()
    assert result.restarts == 1
    assert result.rows_in == ROWS


def test_a_taskmanager_is_killed(tmp_path: Path) -> None:
    job = pressed(tmp_path, aligned_timeout="10 ms").execute_async()
    eventually(lambda: holds_rows_in_flight(tmp_path), PATIENCE)
    kill(pid_of(job, 1))
    open_gate(tmp_path)
    result = job.wait(PATIENCE)
    assert committed(tmp_path) == expected()
    assert result.restarts == 1
    assert result.rows_in == ROWS


@pytest.mark.turns(3)
@pytest.mark.parametrize(("first", "then"), [(2, 3), (3, 1), (2, 2)])
def test_the_parallelism_changes(tmp_path: Path, first: int, then: int) -> None:
    """Rows in flight go where their keys are now."""
    job = pressed(tmp_path, first).execute_async()
    eventually(lambda: holds_rows_in_flight(tmp_path), PATIENCE)
    job.cancel()
    metadata = latest(tmp_path)
    assert metadata is not None
    assert metadata.in_flight_bytes
    assert {each.consumers for each in metadata.exchanges} == {first}
    open_gate(tmp_path)
    result = pressed(tmp_path, then).execute(resume="latest")
    assert committed(tmp_path) == expected()
    assert result.rows_in == ROWS


def fast_and_slow(folder: Path, sources: int) -> hg.StreamEnvironment:
    """Each source task has two outputs: the barrier leaves the first at once, and waits behind rows in the second."""
    options: dict[str, Any] = {"unaligned": True, "aligned_timeout": "10 ms", "restart": hg.restart.none(), **SMALL}
    env = environment(folder, hg.LocalDeployment(2, processes=False), **options)
    half = gated(folder, before=ROWS // 2 // 2)
    streams = [env.from_source(half) for _ in range(sources)]
    stream = streams[0].union(*streams[1:])
    stream.key_by("key").aggregate(final=True, rows=hg.count()).sink_to(hg.sinks.parquet(folder / "fast"))
    behind = stream.rebalance()
    until = slow(0.05, until=folder / "open")
    behind.map_batches(until, schema=stream.schema).select("value").sink_to(hg.sinks.parquet(folder / "slow"))
    return env


@pytest.mark.parametrize("sources", [1, 2])
def test_a_barrier_has_left_one_output_when_it_overtakes_in_another(tmp_path: Path, sources: int) -> None:
    job = fast_and_slow(tmp_path, sources).execute_async()
    eventually(lambda: holds_rows_in_flight(tmp_path) or job.status() == "FAILED", PATIENCE)
    open_gate(tmp_path)
    job.wait(PATIENCE)
    fast, slowly = (ds.dataset(tmp_path / name, format="parquet").to_table() for name in ("fast", "slow"))
    assert pc.sum(fast["rows"]).as_py() == slowly.num_rows == sources * ROWS
    assert len(set(slowly["value"].to_pylist())) == ROWS


def test_parts_say_what_was_overtaken(tmp_path: Path) -> None:
    job = pressed(tmp_path).execute_async()
    eventually(lambda: holds_rows_in_flight(tmp_path), PATIENCE)
    eventually(lambda: any(overtaken(record.parts) > ROWS for record in job.checkpoints() if record.failure is None))
    part = next(iter(job.checkpoints()[0].parts.values()))
    assert part["unaligned"]
    assert {"sync_s", "async_s", "alignment_s", "start_delay_s", "processed_bytes"} <= part.keys()
    job.cancel()


def overtaken(parts: dict[str, dict[str, int]]) -> int:
    return sum(part["overtaken_in_bytes"] + part["overtaken_out_bytes"] for part in parts.values())


def test_a_broadcast_in_flight_needs_as_many_subtasks(tmp_path: Path) -> None:
    def made(parallelism: int, function: Function) -> hg.StreamEnvironment:
        env = environment(tmp_path, hg.LocalDeployment(2, processes=False), parallelism, unaligned=True, **SMALL)
        stream = env.from_source(rows(rate=None)).broadcast()
        stream.map_batches(function, schema=stream.schema).sink_to(hg.sinks.null())
        return env

    job = made(2, slow(0.1)).execute_async()
    eventually(lambda: holds_rows_in_flight(tmp_path), PATIENCE)
    job.cancel()
    with pytest.raises(
        hg.CheckpointError, match="each of 2 subtasks must get each row once, and this job has 3: resume"
    ):
        made(3, lambda batch: batch).execute(resume="latest")
    assert made(2, lambda batch: batch).execute(resume="latest").rows_out == 2 * ROWS


@pytest.mark.turns(2)
@pytest.mark.parametrize("flow_control", ["credit", "tcp"])
def test_at_least_once_loses_nothing(tmp_path: Path, flow_control: str) -> None:
    deployment = hg.LocalDeployment(2, processes=True)
    mode = {"checkpoint_mode": "at-least-once", "flow_control": flow_control}
    env = environment(tmp_path, deployment, 2, **SMALL, **mode)
    job = under_pressure(env, tmp_path).execute_async()
    eventually(lambda: latest(tmp_path), PATIENCE)
    kill(pid_of(job, 1))
    open_gate(tmp_path)
    assert job.wait(PATIENCE).restarts == 1
    assert none_lost(tmp_path)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"unaligned": True, "flow_control": "tcp"}, "unaligned=True needs flow_control='credit'"),
        ({"unaligned": True, "checkpoint_mode": "at-least-once"}, "unaligned=True has no effect"),
        ({"aligned_timeout": 1}, "aligned_timeout=1.0 has no effect without unaligned=True"),
        ({"unaligned": True, "aligned_timeout": -1}, "aligned_timeout=-1"),
        ({"checkpoint_mode": "twice"}, "checkpoint_mode: 'twice' is unknown"),
        ({"unaligned": 1}, "option unaligned: 1 must be True or False"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], why: str) -> None:
    with pytest.raises(hg.ConfigError, match=re.escape(why)):
        hg.Config(checkpoint_dir="here", **options)
    with pytest.raises(hg.ConfigError, match="has no effect without checkpoint_dir"):
        hg.Config(unaligned=True)
