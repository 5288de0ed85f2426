"""Whole jobs whose input queues drop what is too much."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from tests.runtime.jobs import counted, environment, eventually, keyed, numbers

#: Each batch of a source is one message.
EACH = {"flow_control": "unbounded", "buffer_timeout": 0}
ROWS, BATCH, QUEUE = 6400, 64, 10


@pytest.mark.parametrize("drop", ["newest", "oldest"])
def test_a_stalled_sink_gets_what_its_queue_kept(drop: str) -> None:
    """The sink holds its first batch until the source has made all rows."""
    env = environment(parallelism=1, throttle=hg.throttle.Shed(QUEUE, drop=drop), **EACH)  # type: ignore[arg-type]
    made, seen = threading.Event(), []

    def write(batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        assert made.wait(60)
        seen.append(batch["n"][0].as_py() // BATCH)

    counted(env, ROWS).rebalance().sink_to(hg.sinks.for_each_batch(write))
    job = env.execute_async()
    eventually(lambda: job.status() == "FAILED" or job.metrics()["rows_in"] == ROWS)
    made.set()
    result = job.wait(60)
    dropped = sum(task["rows_dropped"] for task in result.metrics["tasks"].values())
    assert result.rows_out + dropped == ROWS
    last = ROWS // BATCH - 1
    first = seen[0]
    if drop == "newest":
        assert len(seen) >= QUEUE
        assert seen[:QUEUE] == list(range(first, first + QUEUE))
    else:
        assert seen[-QUEUE:] == list(range(last - QUEUE + 1, last + 1))
    assert dropped >= ROWS - (QUEUE + 3) * BATCH


@pytest.mark.parametrize("flow_control", ["credit", "tcp", "unbounded"])
def test_every_row_of_processes_is_written_or_counted_as_dropped(flow_control: str) -> None:
    env = environment(True, throttle=hg.throttle.Shed(2), flow_control=flow_control, buffer_timeout=0)

    def slowly(_batch: pa.RecordBatch, _info: hg.BatchInfo) -> None:
        threading.Event().wait(0.002)

    keyed(counted(env, 20_000)).rebalance().sink_to(hg.sinks.for_each_batch(slowly))
    result = env.execute()
    tasks = result.metrics["tasks"]
    dropped = {name: task["rows_dropped"] for name, task in tasks.items()}
    assert result.rows_in == 20_000
    assert result.rows_out + sum(dropped.values()) == 20_000
    assert sum(dropped.values()) > 0


def test_a_queue_with_room_drops_nothing() -> None:
    env = environment(parallelism=2, throttle=hg.throttle.Shed(10_000))
    assert keyed(counted(env, 5000)).collect().num_rows == 5000


def test_a_job_that_may_not_lose_rows_refuses_it(tmp_path: Path) -> None:
    shed = hg.throttle.Shed()
    with pytest.raises(hg.ConfigError, match="drops rows, and a job with checkpoint_dir must not lose any"):
        hg.Config(throttle=shed, checkpoint_dir=tmp_path)
    with pytest.raises(hg.ConfigError, match="execution_mode='batch'"):
        hg.Config(throttle=shed, execution_mode="batch")
    env = hg.StreamEnvironment()
    says = r"Shed\(.*\) limits a whole job, not one source: give it as hg.Config\(throttle=...\)"
    with pytest.raises(hg.PlanError, match=says):
        env.from_source(hg.sources.generate(numbers, rows=1), throttle=shed)
