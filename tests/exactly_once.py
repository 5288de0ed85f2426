"""A pipeline whose committed rows are known exactly: two keyed exchanges, windows over windows and Parquet files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import headgate as hg
from headgate.connectors.connector import Sink, Source

ROWS, KEYS, RATE = 60_000, 50, 50_000.0
#: Event time per row, and the sizes of the windows, microseconds.
STEP, SMALL, LARGE = 100, 200_000, 1_000_000

Row = tuple[int, int, int, int]


def environment(folder: Path, deployment: Any, parallelism: int = 2, **options: Any) -> hg.StreamEnvironment:
    """Return an environment with a checkpoint each 50 ms; `deployment` may be a Spark session."""
    config = hg.Config(**{"checkpoint_dir": folder / "checkpoints", "checkpoint_interval": "50 ms", **options})
    if isinstance(deployment, hg.LocalDeployment):
        return hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)
    return hg.StreamEnvironment(deployment, parallelism=parallelism, config=config)


Function = Callable[[pa.RecordBatch], pa.RecordBatch]


def rows(rate: float | None = RATE, batch_rows: int = 1000) -> Source:
    """Return the source of all rows, in order, at `rate` rows/s."""
    return hg.sources.generate(_rows(), rows=ROWS, rate=rate, batch_rows=batch_rows)


def build(
    env: hg.StreamEnvironment,
    folder: Path,
    function: Function | None = None,
    *,
    source: Source | None = None,
    middle: Function | None = None,
    sink: Sink | None = None,
    branch: bool = False,
) -> hg.StreamEnvironment:
    """Add sums of small windows by key, then of large windows by the key's last digit, and write them to `folder`/out.

    `function` gets every row that the source reads, and `middle` the rows between the exchanges. With a `branch` all
    rows also go to `folder`/branch.
    """
    stream = env.from_source(source or rows(), watermark=hg.Watermark("at"))
    if function is not None:
        stream = stream.map_batches(function, schema=stream.schema)
    if branch:
        stream.rebalance().select("value").sink_to(hg.sinks.parquet(folder / "branch"))
    sums = stream.key_by("key").window(hg.tumble(SMALL / 1e6)).aggregate(total=hg.sum("value"), n=hg.count())
    if middle is not None:
        sums = sums.map_batches(middle, schema=sums.schema)
    digits = sums.map_batches(_with_digit(), schema=sums.schema.append(pa.field("digit", pa.int64())))
    totals = digits.key_by("digit").window(hg.tumble(LARGE / 1e6)).aggregate(total=hg.sum("total"), n=hg.sum("n"))
    totals.sink_to(sink or hg.sinks.parquet(folder / "out"))
    return env


def expected() -> list[Row]:
    """Return the expected rows: digit, number of the large window, sum and count."""
    sums: dict[tuple[int, int], list[int]] = {}
    for number in range(ROWS):
        sums.setdefault((number % KEYS % 10, number * STEP // LARGE), []).append(number)
    return sorted((digit, window, sum(values), len(values)) for (digit, window), values in sums.items())


def committed(folder: Path) -> list[Row]:
    """Return the rows of the visible files in `folder`/out.

    Asserts that no row is twice in the branch, and that none is missing there when `folder`/out has all rows.
    """
    totals = _totals(folder)
    if (folder / "branch").exists():
        values = branched(folder)
        assert len(values) == len(set(values))
        assert totals != expected() or values == list(range(ROWS))
    return totals


def branched(folder: Path) -> list[int]:
    """Return the rows of the visible files in `folder`/branch."""
    if not any((folder / "branch").glob("part-*")):
        return []
    return sorted(ds.dataset(folder / "branch", format="parquet").to_table()["value"].to_pylist())


def _totals(folder: Path) -> list[Row]:
    if not any((folder / "out").glob("part-*")):
        return []
    table = ds.dataset(folder / "out", format="parquet").to_table()
    windows = (table["window_start"].cast(pa.int64()).to_numpy() // LARGE).tolist()
    columns = [table[name].to_pylist() for name in ("digit", "total", "n")]
    return sorted(
        (digit, window, total, n) for digit, window, total, n in zip(columns[0], windows, *columns[1:], strict=True)
    )


def none_lost(folder: Path) -> bool:
    """Return whether every row counts in the visible files, at least once."""
    if (folder / "branch").exists() and set(branched(folder)) != set(range(ROWS)):
        return False
    counts: dict[tuple[int, int], int] = {}
    for digit, window, _, n in _totals(folder):
        counts[digit, window] = counts.get((digit, window), 0) + n
    return all(counts.get((digit, window), 0) >= n for digit, window, _, n in expected())


def attempts(folder: Path) -> set[int]:
    """Return the attempts whose checkpoints are retained."""
    metadata = (folder / "checkpoints").glob("*/chk-*/_metadata")
    return {json.loads(path.read_text())["checkpoint"]["attempt"] for path in metadata}


def fails_once(folder: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that raises one time, after the first complete checkpoint."""
    flag, checkpoints = folder / "failed", folder / "checkpoints"

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not flag.exists() and any(checkpoints.glob("*/chk-*/_metadata")):
            flag.touch()
            raise ValueError("once")
        return batch

    return function


def slow(seconds: float, until: Path | None = None) -> Function:
    """Return a function that takes `seconds` for each batch, until the file `until` exists: it causes back-pressure."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if until is None or not until.exists():
            time.sleep(seconds)
        return batch

    return function


def _rows() -> Callable[[int, int], pa.RecordBatch]:
    keys, step = KEYS, STEP  # locals, since other processes that get the function may not have this module

    def rows(start: int, n: int) -> pa.RecordBatch:
        number = np.arange(start, start + n)
        times = pa.array(number * step, pa.timestamp("us", tz="UTC"))
        return pa.RecordBatch.from_arrays(
            [pa.array(number % keys), pa.array(number), times], names=["key", "value", "at"]
        )

    return rows


def _with_digit() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    def with_digit(batch: pa.RecordBatch) -> pa.RecordBatch:
        digit = pc.subtract(batch["key"], pc.multiply(pc.divide(batch["key"], 10), 10))
        return batch.append_column("digit", digit)

    return with_digit
