"""Random pipelines over two processes, with random stalls: every row arrives once (of a broadcast once everywhere), and
each key's rows in order.

The seed is in the test's name, or printed by the long run, so what is found can be run again.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg

KEYS = 50
LONG_RUN = 600.0
SCHEMA = pa.schema({"n": pa.int64(), "key": pa.int64(), "pad": pa.string()})
STAMPED = SCHEMA.append(pa.field("stamp", pa.int64()))
BROADCAST = "broadcast"
SPREADS: dict[str, Callable[[hg.DataStream], hg.DataStream]] = {
    "rebalance": lambda stream: stream.rebalance(),
    "load_aware": lambda stream: stream.rebalance(load_aware=True),
    "shuffle": lambda stream: stream.shuffle(),
    "rescale": lambda stream: stream.rescale(),
    "to_one": lambda stream: stream.to_one(),
    BROADCAST: lambda stream: stream.broadcast().filter("n >= 0"),
}


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_doubled_or_reordered(seed: int, tmp_path: Path) -> None:
    stress(random.Random(seed), 20_000, tmp_path)


@pytest.mark.soak
def test_ten_minutes_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    began = time.monotonic()
    for seed in itertools.count(1_000):
        with capsys.disabled():
            print(f"stress: seed {seed}, {time.monotonic() - began:.0f} s")
        stress(random.Random(seed), 300_000, tmp_path / str(seed))
        if time.monotonic() - began > LONG_RUN:
            return


def stress(chance: random.Random, rows: int, folder: Path) -> None:
    """One job; its rows pass two or three exchanges, in all but the last of which those of a key stay together."""
    parallelism = chance.choice([2, 3, 4])
    batch_rows = chance.choice([16, 200, 2000])
    env = hg.StreamEnvironment(
        parallelism=parallelism,
        config=config(chance, folder),
        deployment=hg.LocalDeployment(taskmanagers=2, processes=True),
    )
    pad, of_source = chance.choice([0, 10, 300]), rows // chance.choice([1, 1, 2])
    first, *others = (
        env.from_source(hg.sources.generate(numbers(pad, start), rows=of_source, batch_rows=batch_rows))
        for start in range(0, rows, of_source)
    )
    keyed = first.union(*others).key_by("key").map_batches(stalling(chance), schema=SCHEMA)
    again = chance.choice(["not", "key_by", "partition_by"])
    if again != "not":
        dealt = keyed.key_by("key") if again == "key_by" else keyed.partition_by(by_key)
        keyed = dealt.map_batches(stalling(chance), schema=SCHEMA)
    spread = chance.choice(list(SPREADS))
    result = SPREADS[spread](keyed.map_batches(stamped, schema=STAMPED)).collect()
    number = result.column("n").to_numpy()
    copies = parallelism if spread == BROADCAST else 1
    assert np.array_equal(np.sort(number), np.repeat(np.arange(rows), copies)), "lost or doubled"
    source = number // of_source * parallelism + number % of_source // batch_rows % parallelism  # blocks go in turn
    check(result, number, source)


def config(chance: random.Random, folder: Path) -> hg.Config:
    flow_control = chance.choice(["credit", "credit", "tcp"])
    has_credit = flow_control == "credit"
    segment_size = chance.choice([512, 4 << 10, 32 << 10])
    mode = chance.choice(["streaming", "streaming", "checkpoints", "checkpoints", "batch"])
    return hg.Config(
        flow_control=flow_control,
        segment_size=segment_size,
        network_memory=2000 * segment_size,
        message_size=chance.choice([1000, 16 << 10, 128 << 10]),
        buffers_per_channel=chance.choice([0, 1, 2]) if has_credit else 2,
        floating_buffers_per_gate=chance.choice([1, 8]),
        max_buffers_per_channel=chance.choice([2, 10]),
        connections_per_pair=chance.choice([1, 1, 2]),
        buffer_timeout=chance.choice([-1, 0, 0.001, 0.1, "adaptive"]),
        latency_interval=chance.choice([0, 0.05]),
        debloat=has_credit and mode != "batch" and chance.random() < 0.3,
        execution_mode="batch" if mode == "batch" else "streaming",
        paranoid=True,
        **(checkpoints(chance, folder, has_credit) if mode == "checkpoints" else {}),
    )


def checkpoints(chance: random.Random, folder: Path, has_credit: bool) -> dict[str, Any]:
    """Barriers of every kind, some twenty a second; a job that fails stays so."""
    alignment = chance.choice(["aligned", "unaligned", "unaligned in time"]) if has_credit else "aligned"
    return {
        "checkpoint_dir": str(folder),
        "checkpoint_interval": 0.05,
        "unaligned": alignment != "aligned",
        "aligned_timeout": 0.01 if alignment == "unaligned in time" else 0,
        "restart": hg.restart.none(),
    }


def by_key(batch: pa.RecordBatch, subtasks: int) -> Any:
    return batch.column("key").to_numpy() % subtasks


def numbers(pad: int, first: int) -> Callable[[int, int], pa.RecordBatch]:
    """Row i has number `first` + i, a key made of it, and up to `pad` bytes that depend on it."""

    def made(start: int, n: int) -> pa.RecordBatch:
        n_column = np.arange(first + start, first + start + n)
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


def check(result: pa.Table, number: np.ndarray, source: np.ndarray) -> None:
    """Rows of one subtask of a source that have one key came in order."""
    key, stamp = (result.column(name).to_numpy() for name in ("key", "stamp"))
    assert np.array_equal(key, number * 2654435761 % KEYS), "damaged"
    order = np.lexsort((stamp, key, source))
    same = (np.diff(key[order]) == 0) & (np.diff(source[order]) == 0) & (np.diff(number[order]) != 0)
    assert np.all(np.diff(number[order])[same] > 0), "reordered"
