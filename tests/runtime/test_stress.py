"""Random pipelines over two processes, with random stalls: every row arrives once, and each key's rows in order.

The seed is in the test's name, or printed by the long run, so what is found can be run again.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg

KEYS = 50
LONG_RUN = 600.0
SCHEMA = pa.schema({"n": pa.int64(), "key": pa.int64(), "pad": pa.string()})
STAMPED = SCHEMA.append(pa.field("stamp", pa.int64()))


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_doubled_or_reordered(seed: int) -> None:
    stress(random.Random(seed), 20_000)


@pytest.mark.soak
def test_ten_minutes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    for seed in itertools.count(1_000):
        with capsys.disabled():
            print(f"stress: seed {seed}, {time.monotonic() - began:.0f} s")
        stress(random.Random(seed), 300_000)
        if time.monotonic() - began > LONG_RUN:
            return


def stress(chance: random.Random, rows: int) -> None:
    """One job; its rows pass two exchanges by the same key, with rows dealt otherwise before and between them."""
    parallelism = chance.choice([2, 3, 4])
    batch_rows = chance.choice([16, 200, 2000])
    env = hg.StreamEnvironment(
        parallelism=parallelism,
        config=config(chance),
        deployment=hg.LocalDeployment(taskmanagers=2, processes=True),
    )
    source = hg.sources.generate(numbers(chance.choice([0, 10, 300])), rows=rows, batch_rows=batch_rows)
    keyed = env.from_source(source).key_by("key").map_batches(stalling(chance), schema=SCHEMA)
    if chance.random() < 0.5:
        keyed = keyed.key_by("key").map_batches(stalling(chance), schema=SCHEMA)
    dealt = keyed.map_batches(stamped, schema=STAMPED)
    spread = chance.choice(["rebalance", "shuffle", "rescale", "to_one"])
    check(getattr(dealt, spread)().collect(), rows, batch_rows, parallelism)


def config(chance: random.Random) -> hg.Config:
    flow_control = chance.choice(["credit", "credit", "tcp"])
    segment_size = chance.choice([512, 4 << 10, 32 << 10])
    return hg.Config(
        flow_control=flow_control,
        segment_size=segment_size,
        network_memory=2000 * segment_size,
        message_size=chance.choice([1000, 16 << 10, 128 << 10]),
        buffers_per_channel=chance.choice([0, 1, 2]) if flow_control == "credit" else 2,
        floating_buffers_per_gate=chance.choice([1, 8]),
        max_buffers_per_channel=chance.choice([2, 10]),
        buffer_timeout=chance.choice([-1, 0, 0.001, 0.1, "adaptive"]),
        debloat=flow_control == "credit" and chance.random() < 0.3,
        paranoid=True,
    )


def numbers(pad: int) -> Callable[[int, int], pa.RecordBatch]:
    """Row i has number i, a key made of it, and up to `pad` bytes that depend on it."""

    def made(start: int, n: int) -> pa.RecordBatch:
        n_column = np.arange(start, start + n)
        padding = ["x" * (int(number) * 7 % (pad + 1)) for number in n_column]
        columns = [pa.array(n_column), pa.array(n_column * 2654435761 % KEYS), pa.array(padding, pa.string())]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return made


def stalling(chance: random.Random) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that stands still now and then, in its own rhythm."""
    every, pause = chance.choice([3, 17, 1000]), chance.choice([0.001, 0.01, 0.05])
    calls = itertools.count(1)

    def stall(batch: pa.RecordBatch) -> pa.RecordBatch:
        if next(calls) % every == 0:
            time.sleep(pause)  # the load itself: a user's function that takes its time
        return batch

    return stall


def stamped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """When each row came; one subtask has all rows of a key, so its clock tells their order."""
    first = time.monotonic_ns()
    return batch.append_column("stamp", pa.array(np.arange(first, first + batch.num_rows)))


def check(result: pa.Table, rows: int, batch_rows: int, parallelism: int) -> None:
    number, key, stamp = (result.column(name).to_numpy() for name in ("n", "key", "stamp"))
    assert np.array_equal(np.sort(number), np.arange(rows)), "lost or doubled"
    assert np.array_equal(key, number * 2654435761 % KEYS), "damaged"
    source = number // batch_rows % parallelism  # blocks of rows are dealt to the source's subtasks in turn
    order = np.lexsort((stamp, key, source))
    same = (np.diff(key[order]) == 0) & (np.diff(source[order]) == 0)
    assert np.all(np.diff(number[order])[same] > 0), "reordered"
