"""Jobs with `max_drift`: a fast subtask waits for a slow one, and the job ends with the same answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headgate as hg
from headgate.errors import ConfigError, PlanError
from headgate.simulation.simulated_environment import SimulatedEnvironment
from tests.runtime.jobs import eventually

ROWS, BATCH = 20_000, 100
MINUTE = 60_000_000


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two files with a row for each second."""
    for part in range(2):
        times = pa.array([second * 1_000_000 for second in range(ROWS)], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"at": times, "part": [part] * ROWS}), tmp_path / f"{part}.parquet")
    return str(tmp_path)


class Progress:
    """The latest time of each file, and the largest lead of file 1. File 0 waits for `allowed` before each batch."""

    def __init__(self, slow: Callable[[], None]) -> None:
        self.at, self.lead, self.slow = [0, 0], 0, slow

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        part = batch["part"][0].as_py()
        if part == 0:
            self.slow()
        self.at[part] = pc.max(batch["at"]).value
        if part == 1 and self.at[0] < (ROWS - BATCH) * 1_000_000:
            self.lead = max(self.lead, self.at[1] - self.at[0])
        return batch


def run(folder: str, watermark: hg.Watermark, progress: Any, **config: Any) -> pa.Table:
    env = hg.StreamEnvironment(
        parallelism=2, config=hg.Config(**config), deployment=hg.LocalDeployment(processes=False)
    )
    rows = env.from_source(hg.sources.parquet(folder, batch_rows=BATCH, split_size="1 kb"), watermark=watermark)
    seen = rows.map_batches(progress, schema=rows.schema)
    return seen.key_by("part").window(hg.tumble("1 h")).aggregate(n=hg.count()).collect()


def waiting() -> Callable[[], None]:
    """Return a call that takes 2 ms. It waits for an event that never comes: no time is measured with it."""
    never = threading.Event()

    def wait() -> None:
        never.wait(0.002)

    return wait


def test_a_fast_subtask_waits_for_a_slow_one(folder: str) -> None:
    aligned = Progress(waiting())
    # However late it starts, file 1 has the time to get ahead.
    free = Progress(lambda: eventually(lambda: free.lead > 100 * MINUTE, 60))
    answer = run(folder, hg.Watermark("at", max_drift="10 min"), aligned)
    assert answer.num_rows == 2 * -(-ROWS // 3600)
    assert sum(answer["n"].to_pylist()) == 2 * ROWS
    # A batch is read before the wait, and the driver's bound is a share of the drift behind.
    assert aligned.lead <= 10 * MINUTE * 1.5 + 2 * BATCH * 1_000_000
    run(folder, hg.Watermark("at"), free)
    assert free.lead > 100 * MINUTE


def test_a_subtask_without_a_split_does_not_stop_the_others(folder: str) -> None:
    (Path(folder) / "0.parquet").unlink()
    answer = run(folder, hg.Watermark("at", max_drift=1), Progress(lambda: None))
    assert sum(answer["n"].to_pylist()) == ROWS


def test_batch_mode_ignores_it(folder: str) -> None:
    answer = run(folder, hg.Watermark("at", max_drift=1), Progress(lambda: None), execution_mode="batch")
    assert sum(answer["n"].to_pylist()) == 2 * ROWS


def test_processes_align_over_the_control_link(folder: str) -> None:
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(taskmanagers=2, processes=True))
    source = hg.sources.parquet(folder, batch_rows=BATCH, split_size="1 kb")
    rows = env.from_source(source, watermark=hg.Watermark("at", max_drift="1 min"))
    sums = rows.key_by("part").window(hg.tumble("1 h")).aggregate(n=hg.count())
    assert sum(sums.collect()["n"].to_pylist()) == 2 * ROWS


def test_an_idle_subtask_does_not_stop_the_others() -> None:
    over = threading.Event()

    def batches(subtask: int, _: int) -> Any:
        if subtask == 0:
            over.wait()
            return
        for second in range(0, 1000, 10):
            times = pa.array([second * 1_000_000], pa.timestamp("us", "UTC"))
            yield pa.record_batch({"at": times, "part": [subtask]})

    schema = pa.schema({"at": pa.timestamp("us", "UTC"), "part": pa.int64()})
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(processes=False))
    source = hg.sources.iterable(batches, schema, bounded=False, replayable=False)
    rows = env.from_source(source, watermark=hg.Watermark("at", max_drift="1 min", idle_timeout="100 ms"))
    try:
        assert rows.collect(limit=100).num_rows == 100
    finally:
        over.set()


def test_a_restart_goes_on_aligned(folder: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    failed: list[int] = []

    class Failing(Progress):
        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            if not failed and self.at[0] > ROWS * 500_000:
                failed.append(1)
                raise ValueError("once")
            return super().__call__(batch)

    answer = run(
        folder,
        hg.Watermark("at", max_drift="10 min"),
        Failing(waiting()),
        checkpoint_dir=str(tmp_path_factory.mktemp("checkpoints")),
        checkpoint_interval="50 ms",
        restart=hg.restart.fixed(2, delay=0),
    )
    assert failed
    assert sum(answer["n"].to_pylist()) == 2 * ROWS


@pytest.mark.parametrize("drift", [0, -1, "0 s", "1 parsec", "-5 s", 1e-9])
def test_an_impossible_drift_is_an_error(drift: Any) -> None:
    with pytest.raises(PlanError, match="max_drift"):
        hg.Watermark("at", max_drift=drift)


def test_a_simulation_says_that_it_cannot(folder: str) -> None:
    env = SimulatedEnvironment(parallelism=2)
    rows = env.from_source(hg.sources.parquet(folder), watermark=hg.Watermark("at", max_drift="1 min"))
    rows.sink_to(hg.sinks.null())
    with pytest.raises(ConfigError, match="max_drift"):
        env.execute("aligned")
