"""Jobs that fail on their way and start again from a checkpoint: what is committed is as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from tests.runtime.jobs import eventually

ROWS, KEYS, RATE = 60_000, 50, 20_000.0
SECOND = 1_000_000


def rows(start: int, n: int) -> pa.RecordBatch:
    number = np.arange(start, start + n)
    times = pa.array(number * 100, pa.timestamp("us", tz="UTC"))  # 10,000 rows to a second of event time
    return pa.RecordBatch.from_arrays([pa.array(number % KEYS), pa.array(number), times], names=["key", "value", "at"])


def expected() -> list[tuple[int, int, int, int]]:
    """Key, window (s), sum and count."""
    sums: dict[tuple[int, int], list[int]] = {}
    for number in range(ROWS):
        sums.setdefault((number % KEYS, number * 100 // SECOND), []).append(number)
    return sorted((key, window, sum(values), len(values)) for (key, window), values in sums.items())


def written(folder: Path) -> list[tuple[int, int, int, int]]:
    """The same of what is visible in a sink's folder."""
    table = ds.dataset(folder, format="parquet", exclude_invalid_files=False).to_table()
    starts = table["window_start"].cast(pa.int64()).to_numpy() // SECOND
    return sorted(zip(table["key"].to_pylist(), starts.tolist(), table["total"].to_pylist(), table["n"].to_pylist(),
                      strict=True))  # fmt: skip


def checkpoints(folder: Path) -> int:
    """How many have been completed and are kept."""
    return len(list(folder.glob("*/chk-*/_metadata")))


def has_progressed(job: hg.JobHandle, folder: Path, attempt: int) -> bool:
    """A checkpoint of this attempt is complete."""
    found = [json.loads(path.read_text())["checkpoint"]["attempt"] for path in folder.glob("*/chk-*/_metadata")]
    return job.status() == "RUNNING" and attempt in found


def pipeline(
    tmp_path: Path, deployment: hg.LocalDeployment, parallelism: int = 2,
    function: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None, **options: Any,
) -> hg.StreamEnvironment:  # fmt: skip
    """Two keyed exchanges, windows, and files."""
    config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="50 ms", **options)
    env = hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)
    stream = env.from_source(hg.sources.generate(rows, rows=ROWS, rate=RATE), watermark=hg.Watermark("at"))
    if function is not None:
        stream = stream.map_batches(function)
    stream.key_by("key").window(hg.tumble("1 s")).aggregate(total=hg.sum("value"), n=hg.count()).sink_to(
        hg.sinks.parquet(tmp_path / "out")
    )
    return env


def fails_once(folder: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Raises when the first checkpoint is complete, and never again."""
    flag, kept = folder / "failed", folder / "checkpoints"

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not flag.exists() and any(kept.glob("*/chk-*/_metadata")):
            flag.touch()
            raise ValueError("once")
        return batch

    return function


@pytest.mark.parametrize("processes", [False, True])
def test_a_function_that_raises_once(tmp_path: Path, processes: bool) -> None:
    env = pipeline(tmp_path, hg.LocalDeployment(2, processes), function=fails_once(tmp_path))
    result = env.execute()
    assert (tmp_path / "failed").exists()
    assert result.restarts == 1
    assert written(tmp_path / "out") == expected()
    assert (result.rows_in, result.rows_out) == (ROWS, len(expected()))


def test_a_taskmanager_that_is_killed(tmp_path: Path) -> None:
    job = pipeline(tmp_path, hg.LocalDeployment(2, processes=True)).execute_async()
    for number in range(2):
        eventually(partial(has_progressed, job, tmp_path / "checkpoints", number))
        os.kill(job._master._attempt.members[number].pid, signal.SIGKILL)
    result = job.wait(60)
    assert result.restarts == 2
    assert written(tmp_path / "out") == expected()


def test_without_a_failure_all_is_committed_and_the_last_checkpoints_stay(tmp_path: Path) -> None:
    result = pipeline(tmp_path, hg.LocalDeployment(2)).execute()
    assert result.restarts == 0
    assert written(tmp_path / "out") == expected()
    assert 1 <= checkpoints(tmp_path / "checkpoints") <= 3


def test_a_job_that_is_cancelled_leaves_the_rows_of_its_last_checkpoint(tmp_path: Path) -> None:
    job = pipeline(tmp_path, hg.LocalDeployment(2)).execute_async()
    eventually(lambda: any((tmp_path / "out").glob("part-*")))
    job.cancel()
    seen = written(tmp_path / "out")
    assert seen and set(seen) < set(expected())
    assert not list((tmp_path / "out").glob("_*"))
