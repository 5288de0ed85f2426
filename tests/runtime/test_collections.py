"""Garbage collection counts for the task whose thread collects, in a real job."""

from __future__ import annotations

import gc
from typing import Any

import pyarrow as pa

import headgate as hg
from tests.runtime.jobs import NUMBERS, endless, environment, eventually


def collects(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Collect at once: collections that come of themselves run on any thread that makes objects."""
    gc.collect()
    return batch


def test_collections_count_for_the_task_that_collects(processes: bool) -> None:
    env = environment(processes, taskmanagers=1, parallelism=1)
    collected = endless(env).map_batches(collects, schema=NUMBERS).name("collects").disable_chaining()
    collected.sink_to(hg.sinks.null())
    job = env.execute_async()

    def has_collected() -> dict[str, Any] | None:
        tasks: dict[str, Any] = job.metrics().get("tasks", {})
        return tasks if tasks.get("collects[0]", {}).get("collection_s", 0.0) > 1.0 else None

    try:
        tasks = eventually(has_collected)
    finally:
        job.cancel()
    task = tasks.pop("collects[0]")
    assert task["collection_s"] <= task["busy_s"] + 0.5  # the counters of a task are read one after the other
    assert len(tasks) == 2
    assert all(other["collection_s"] < task["collection_s"] / 4 for other in tasks.values())
