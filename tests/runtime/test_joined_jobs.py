"""Jobs with joins that end and go on: from checkpoints with rows in flight to both inputs, with other parallelisms."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.state.checkpoint_storage import CheckpointStorage
from tests.runtime.jobs import eventually

PATIENCE = 60.0
ROWS, KEYS, STEP = 6_000, 50, 1000  # a row of each side for each millisecond of event time
Row = tuple[int, int | None]


def numbered(name: str, columns: int) -> Callable[[int, int], pa.RecordBatch]:
    """Rows out of order by up to 5 ms. The sides differ in their columns, so they cannot be taken for each other."""
    keys, step = KEYS, STEP

    def make(start: int, n: int) -> pa.RecordBatch:
        number = np.arange(start, start + n)
        at = number * step + (number * 7919 % 5) * step
        last = {f"text{index}": pa.array([f"row {row}" for row in number], pa.string()) for index in range(columns)}
        return pa.record_batch(
            {"k": number * 31 % keys, name: number, f"{name}_at": pa.array(at, pa.timestamp("us")), **last}
        )

    return make


def times(number: int) -> int:
    return number * STEP + (number * 7919 % 5) * STEP


def build(folder: Path, parallelism: int, kind: str, *, unaligned: bool = False) -> hg.StreamEnvironment:
    """A job whose results wait for the file `open`. Each batch before takes a while, so rows wait for the join."""
    config = hg.Config(
        checkpoint_dir=folder / "checkpoints", checkpoint_interval="50 ms", unaligned=unaligned, max_parallelism=16,
        segment_size=4096, message_size=4096, restart=hg.restart.none(),
    )  # fmt: skip
    env = hg.StreamEnvironment(
        parallelism=parallelism, config=config, deployment=hg.LocalDeployment(1, processes=False)
    )
    left, right = (
        env.from_source(
            hg.sources.generate(numbered(name, columns), rows=ROWS, batch_rows=200, rate=8_000),
            watermark=hg.Watermark(f"{name}_at", out_of_orderness="5 ms"),
        ).uid(name)
        for name, columns in (("a", 0), ("b", 2))
    )
    if kind == "join":
        joined = left.join(right, on="k", within=("-3 ms", "60 ms"), how="left")
    else:
        joined = left.join_as_of(right, on="k")
    gate, pause = folder / "open", 0.2 if unaligned else 0.01

    def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not gate.exists():
            time.sleep(pause)
        return batch

    results = (
        joined.uid("join")
        .select("a", "b")
        .rebalance()
        .map_batches(slowly, schema=pa.schema({"a": pa.int64(), "b": pa.int64()}))
    )
    results.sink_to(hg.sinks.parquet(folder / "out")).uid("out")
    return env


def expected(kind: str) -> list[Row]:
    found: list[Row] = []
    by_key: dict[int, list[tuple[int, int]]] = {}
    for b in range(ROWS):
        by_key.setdefault(b * 31 % KEYS, []).append((times(b), b))
    for a in range(ROWS):
        at, others = times(a), by_key[a * 31 % KEYS]
        if kind == "join":
            near = [b for when, b in others if at - 3 * STEP <= when <= at + 60 * STEP]
            found += [(a, b) for b in near] or [(a, None)]
        else:
            before = [each for each in others if each[0] <= at]
            found.append((a, max(before)[1] if before else None))
    return in_order(found)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], -1 if row[1] is None else row[1]))


def written(folder: Path) -> list[Row]:
    table = ds.dataset([str(path) for path in (folder / "out").glob("part-*")]).to_table()
    return in_order(list(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)))


def last_checkpoint(folder: Path, unaligned: bool) -> int:
    """The last checkpoint, or 0. With `unaligned`, the last one with rows in flight to both inputs of the join."""
    storage = CheckpointStorage(folder / "checkpoints", "job")
    for checkpoint in storage.completed():
        metadata: Any = storage.load(checkpoint)
        in_flight = {exchange.key for exchange in metadata.exchanges} if metadata.in_flight_bytes else set()
        if not unaligned or {"a -> join [0]", "b -> join [1]"} <= in_flight:
            return int(metadata.id)
    return 0


def next_checkpoint(job: hg.JobHandle, folder: Path, unaligned: bool, before: int) -> int:
    def has_one() -> bool:
        return last_checkpoint(folder, unaligned) > before

    eventually(lambda: has_one() or job.status() not in ("CREATED", "RUNNING"), PATIENCE)
    assert has_one()
    return last_checkpoint(folder, unaligned)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["join", "as of"])
@pytest.mark.parametrize("unaligned", [False, True])
def test_a_join_goes_on_with_another_parallelism(kind: str, unaligned: bool, tmp_path: Path) -> None:
    taken = 0
    for parallelism in (2, 3):
        job = build(tmp_path, parallelism, kind, unaligned=unaligned).execute_async("job", resume="latest-if-any")
        taken = next_checkpoint(job, tmp_path, unaligned, taken)
        job.cancel()
    (tmp_path / "open").touch()
    build(tmp_path, 1, kind, unaligned=unaligned).execute("job", resume="latest")
    assert written(tmp_path) == expected(kind)
