"""Rows of a slow stream arrive though their message never fills and no timeout ends."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from tests.runtime.jobs import endless, environment, eventually


@pytest.mark.parametrize("processes", [False, True])
def test_rows_of_a_slow_stream_arrive(processes: bool, tmp_path: Path) -> None:
    """Two exchanges, twenty rows a second; a message holds thousands."""
    arrived = tmp_path / "arrived"

    def note(batch: pa.RecordBatch, _info: object) -> None:
        with arrived.open("a") as file:
            file.write(f"{batch.num_rows} {time.time()}\n")

    env = environment(processes, buffer_timeout="adaptive")
    stream = endless(env, rate=20).rebalance().select("n").disable_chaining().rebalance()
    stream.sink_to(hg.sinks.for_each_batch(note))
    job = env.execute_async()
    eventually(lambda: arrived.exists() and len(arrived.read_text().splitlines()) >= 8, 60)
    job.cancel()


def test_what_a_busy_reader_left_behind_arrives_when_it_is_done() -> None:
    """A sink that stands still makes rows gather; the stream then ends in silence, and the sink gets them all."""
    seen: list[int] = []

    def slow(batch: pa.RecordBatch, _info: object) -> None:
        time.sleep(0.05)
        seen.append(batch.num_rows)

    env = environment(parallelism=1, taskmanagers=1, buffer_timeout="adaptive")
    endless(env, rate=2000).disable_chaining().sink_to(hg.sinks.for_each_batch(slow))
    job = env.execute_async()
    eventually(lambda: sum(seen) > 500)
    job.cancel()
    assert max(seen) > 1, "rows for a busy sink gather"
