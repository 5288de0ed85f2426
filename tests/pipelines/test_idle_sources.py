"""An idle source does not hold back event time; one that is only held back is not idle."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import headgate as hg

pytestmark = pytest.mark.alone

SCHEMA = pa.schema({"key": pa.string(), "ts": pa.timestamp("us")})
BATCHES, BATCH = 40, 50
IDLE_TIMEOUT = 0.25
SECOND = 1_000_000

#: So little memory that a stall at once reaches the source.
TIGHT = hg.Config(
    segment_size=512, message_size=512, buffers_per_channel=1, floating_buffers_per_gate=1, buffer_timeout=0
)


def rows(key: str, first: int) -> pa.RecordBatch:
    times = [(first + number) * SECOND // 10 for number in range(BATCH)]
    return pa.RecordBatch.from_arrays([pa.array([key] * BATCH), pa.array(times, pa.timestamp("us"))], schema=SCHEMA)


class StallOnce:
    """Holds its task up once, for ten times the idle timeout."""

    def __init__(self) -> None:
        self.stalled = False

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.stalled:
            self.stalled = True
            threading.Event().wait(10 * IDLE_TIMEOUT)
        return batch


def stream(env: hg.StreamEnvironment, key: str, start: int) -> hg.DataStream:
    ready = [rows(key, start + number * BATCH) for number in range(BATCHES)]  # no time is lost on making them
    source = hg.sources.iterable(lambda subtask, subtasks: iter(ready), schema=SCHEMA, bounded=False)
    return env.from_source(source, watermark=hg.Watermark("ts", idle_timeout=IDLE_TIMEOUT))


def test_a_source_held_back_for_ten_times_its_idle_timeout_loses_no_row() -> None:
    env = hg.StreamEnvironment(config=TIGHT)
    slow = stream(env, "slow", 0).map_batches(StallOnce(), schema=SCHEMA).disable_chaining()
    ahead = stream(env, "ahead", 1_000_000)
    collected = hg.sinks.collect()
    slow.union(ahead).key_by("key").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(collected)
    result = env.execute("held back")
    assert result.late_rows == 0
    assert sum(collected.to_table()["rows"].to_pylist()) == 2 * BATCHES * BATCH


def test_an_idle_source_does_not_hold_back_the_others() -> None:
    """Both sources end only after a window of the busy one was seen, which the other's idleness alone allows."""
    seen = threading.Event()
    in_time: list[bool] = []

    def quiet(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        in_time.append(seen.wait(60))
        yield rows("quiet", 0)

    def busy(_subtask: int, _subtasks: int) -> Iterator[pa.RecordBatch]:
        for number in range(6000):
            if seen.wait(0.01):
                return
            yield rows("busy", number * BATCH)

    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
    watermark = hg.Watermark("ts", idle_timeout=IDLE_TIMEOUT)
    idle, other = (
        env.from_source(hg.sources.iterable(batches, schema=SCHEMA, bounded=False), watermark=watermark)
        for batches in (quiet, busy)
    )
    windows = idle.union(other).key_by("key").window(hg.tumble("1 s")).aggregate(rows=hg.count())
    windows.sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.set()))
    env.execute("idle")
    assert in_time == [True]
