"""How full the pools of a job's tasks are, and what that says of where it is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.config import FlowControl
from tests.runtime.jobs import NUMBERS, counted, endless, environment, eventually
from tests.runtime.test_barriers import PATIENCE, Door, end

KEYS = {"out_pool_usage", "in_pool_usage", "input_floating_usage", "input_exclusive_usage"}


def to(subtask: int) -> Any:
    return lambda batch, subtasks: np.full(batch.num_rows, subtask)


@pytest.mark.turns(2)
@pytest.mark.parametrize("flow_control", [FlowControl.CREDIT, FlowControl.TCP])
def test_the_root_has_a_full_input_and_an_empty_output(
    tmp_path: Path, processes: bool, flow_control: FlowControl
) -> None:
    """A source, a relay in the other TaskManager, and a sink in the first one that stands."""
    door = Door(tmp_path)
    env = environment(
        processes,
        segment_size=4096,
        message_size=4096,
        max_buffers_per_channel=100,
        max_overdraft_buffers_per_gate=0,
        flow_control=flow_control,
    )

    def relayed(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    source = endless(env).set_parallelism(1)
    relay = source.partition_by(to(1)).map_batches(relayed, schema=NUMBERS).name("relay")
    slow = relay.partition_by(to(0)).map_batches(door.pass_through, schema=NUMBERS).name("slow")
    slow.sink_to(hg.sinks.null())
    job = env.execute_async()

    def usage(task: str) -> list[float]:
        found = job.metrics()["tasks"].get(task, {})
        return [round(found.get(key, -1), 2) for key in ("in_pool_usage", "out_pool_usage")]

    try:
        expected = {"generate[0]": [0, 1], "relay[1]": [1, 1], "slow -> null[0]": [1, 0], "slow -> null[1]": [0, 0]}
        eventually(lambda: {task: usage(task) for task in expected} == expected, PATIENCE)
        slowest = job.metrics()["tasks"]["slow -> null[0]"]
        exclusive = flow_control is FlowControl.CREDIT
        assert (slowest["input_floating_usage"], slowest["input_exclusive_usage"]) == (1, float(exclusive))
    finally:
        door.open()
    end(job)


def test_nothing_is_used_in_the_end(processes: bool) -> None:
    env = environment(processes)
    counted(env).key_by("n").aggregate(rows=hg.count()).sink_to(hg.sinks.null())
    tasks = env.execute().metrics["tasks"]
    assert {task[key] for task in tasks.values() for key in KEYS} == {0}
