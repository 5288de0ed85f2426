"""Small jobs of every shape, with as little memory as they can have: none hangs, leaks or loses a row.

The seed is in the test's name, so what is found can be run again.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from tests.ending import END, within

pytestmark = pytest.mark.ends

#: What a whole job of these may take, on a machine with too much to do, seconds.
WHOLE = 80.0

SHAPES = ["keyed", "keyed twice", "window", "broadcast", "rebalance", "union", "forward"]


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(40))
def test_a_job_that_finishes_fails_or_is_cancelled(seed: int) -> None:
    RandomJob(random.Random(seed)).run()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_a_thousand_jobs(seed: int) -> None:
    RandomJob(random.Random(seed)).run()


class RandomJob:
    """One choice of everything that can be chosen."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        segment_size = chance.choice([512, 1024, 32 << 10])
        self.config = hg.Config(
            segment_size=segment_size,
            network_memory=segment_size * chance.choice([20, 40, 60, 2000]),
            message_size=chance.choice([1, 2000, 128 << 10]),
            buffers_per_channel=chance.choice([0, 1, 2]),
            floating_buffers_per_gate=chance.choice([1, 8]),
            max_buffers_per_channel=chance.choice([1, 2, 10]),
            max_overdraft_buffers_per_gate=chance.choice([0, 5]),
            buffer_timeout=chance.choice([-1, 0, 0.001, 0.1]),
            watermark_interval=chance.choice([0, 0.2]),
            paranoid=True,
        )
        self.taskmanagers, self.parallelism = chance.choice([1, 2, 3]), chance.choice([1, 2, 3])
        self.shape = chance.choice(SHAPES)
        self.ending = chance.choice(["finish", "finish", "fail", "cancel"])
        self.rows = chance.choice([0, 1, 300, 1000])
        self.batch_rows = chance.choice([1, 64, 1000])
        self.widest = chance.choice([1, 200, 2000])
        self.cancel_after = chance.choice([0.0, 0.01, 0.1]) * chance.random()

    def run(self) -> None:
        env = hg.StreamEnvironment(
            parallelism=self.parallelism,
            config=self.config,
            deployment=hg.LocalDeployment(self.taskmanagers, processes=False),
        )
        rows = 1 << 40 if self.ending == "cancel" else self.rows
        source = hg.sources.generate(self.make, rows=rows, batch_rows=self.batch_rows)
        stream = self.shaped(env.from_source(source, watermark=hg.Watermark("ts")))
        sink = hg.sinks.null() if self.ending == "cancel" else hg.sinks.collect()
        stream.sink_to(sink)
        with within(WHOLE):
            try:
                self.follow(env.execute_async(), sink)
            except hg.InsufficientBuffers:
                assert self.config.network_memory <= 60 * self.config.segment_size

    def follow(self, job: hg.JobHandle, sink: Any) -> None:
        if self.ending == "cancel":
            with pytest.raises(TimeoutError):
                job.wait(self.cancel_after)
            with within(END):
                job.cancel()
            with pytest.raises(hg.JobCancelled) as caught:
                job.wait()
            assert caught.value.message == "job 'job' was cancelled"
        elif self.ending == "fail" and self.rows > 0:
            with pytest.raises(hg.UserFunctionError, match="enough"):
                job.wait()
        else:
            result = job.wait()
            assert result.rows_in == self.rows
            assert self.counted(sink.to_table()) + result.late_rows == self.expected()

    def make(self, start: int, n: int) -> pa.RecordBatch:
        numbers = np.arange(start, start + n)
        return pa.record_batch(
            {
                "n": pa.array(numbers, pa.int64()),
                "key": pa.array(numbers % 17, pa.int64()),
                "text": pa.array(["x" * (number * 37 % self.widest) for number in numbers.tolist()], pa.string()),
                "ts": pa.array(numbers * 1000, pa.timestamp("us")),
            }
        )

    def fail(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.ending == "fail" and batch["n"][-1].as_py() >= self.rows // 2:
            raise ValueError("enough")
        return batch

    def shaped(self, stream: hg.DataStream) -> hg.DataStream:
        stream = stream.map_batches(self.fail, schema=stream.schema)
        match self.shape:
            case "keyed":
                return stream.key_by("key").aggregate(rows=hg.count(), final=True)
            case "keyed twice":
                counts = stream.key_by("text").aggregate(part=hg.count(), final=True)
                return counts.key_by("part").aggregate(rows=hg.sum("part"), final=True)
            case "window":
                return stream.key_by("key").window(hg.tumble("1 s")).aggregate(rows=hg.count())
            case "broadcast":
                return stream.broadcast().filter("n >= 0")
            case "rebalance":
                return stream.rebalance().filter("n >= 0").rebalance().filter("n >= 0")
            case "union":
                halves = stream.filter("key < 9").union(stream.filter("key >= 9"))
                return halves.rebalance().filter("n >= 0").disable_chaining()
            case _:
                return stream.disable_chaining().select("n")

    def counted(self, table: pa.Table) -> int:
        return sum(table["rows"].to_pylist()) if "rows" in table.column_names else table.num_rows

    def expected(self) -> int:
        return self.rows * self.parallelism if self.shape == "broadcast" else self.rows
