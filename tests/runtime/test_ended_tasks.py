"""A checkpoint taken while a job comes to its end: some tasks have ended, and left no state."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.runtime.task.heads import END, InputHead
from headgate.state.checkpoint_metadata import Finished
from headgate.state.checkpoint_storage import CheckpointStorage, load_checkpoint
from tests.runtime.jobs import eventually

ROWS, KEYS = 1500, 40


def numbered(start: int, n: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + n)
    times = pa.array(numbers * 1000, pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(numbers % KEYS), times], names=["n", "key", "at"])


def environment(folder: Path, parallelism: int, **options: Any) -> hg.StreamEnvironment:
    config = hg.Config(checkpoint_dir=folder / "checkpoints", checkpoint_interval="50 ms", **options)
    deployment = hg.LocalDeployment(1, processes=False)
    return hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)


def shown(folder: Path) -> list[dict[str, Any]]:
    files = [str(file) for file in folder.glob("part-*")]
    return ds.dataset(files).to_table().to_pylist() if files else []


@pytest.mark.parametrize("final", [True, False])
def test_the_answer_of_a_global_aggregate_is_there_once(tmp_path: Path, final: bool) -> None:
    answers = []
    for _ in range(3):
        env = environment(tmp_path, 1)
        source = env.from_source(hg.sources.generate(numbered, rows=ROWS, batch_rows=ROWS))
        counts = source.key_by().aggregate(final=final, rows=hg.count())
        counts.changes().sink_to(hg.sinks.parquet(tmp_path / "out"))
        env.execute("job", resume="latest-if-any")
        answers.append(shown(tmp_path / "out"))
    assert answers == [[{"rows": ROWS}]] * 3


def test_a_global_aggregate_that_has_ended_is_silent_after_a_restart(tmp_path: Path) -> None:
    has_ended, failed = threading.Event(), threading.Event()

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if has_ended.is_set() and not failed.is_set():
            failed.set()
            raise ValueError("once")
        return batch

    env = environment(tmp_path, 1, restart=hg.restart.fixed(2, "10 ms"))
    source = env.from_source(hg.sources.generate(numbered, rows=ROWS))
    source.key_by().aggregate(final=True, rows=hg.count()).sink_to(hg.sinks.parquet(tmp_path / "out"))
    other = env.from_source(hg.sources.generate(numbered, rows=100_000_000, rate=2000))
    other.map_batches(fails_once, schema=other.schema).sink_to(hg.sinks.null())
    job = env.execute_async("job")
    eventually(lambda: shown(tmp_path / "out"), 60)
    has_ended.set()
    eventually(failed.is_set, 60)
    job.stop(drain=True)
    assert job.wait(60).restarts == 1
    assert shown(tmp_path / "out") == [{"rows": ROWS}]


@pytest.fixture
def half_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job that was cancelled when one of two window subtasks had ended, and the other had not."""
    released, step = threading.Event(), InputHead.step

    def held(head: InputHead, now: float) -> float:
        context = getattr(head._output, "context", None)
        if context is None or (context.operator, context.subtask) != ("window", 1) or released.is_set():
            return step(head, now)
        if getattr(held, "ended", False):
            return now + 0.01
        held.ended = step(head, now) == END  # type: ignore[attr-defined]
        return now + 0.01 if held.ended else 0.0  # type: ignore[attr-defined]

    monkeypatch.setattr(InputHead, "step", held)
    job = windows(tmp_path, 2).execute_async("job")

    def is_half_ended() -> bool:
        folders = CheckpointStorage(tmp_path / "checkpoints", "job").completed()
        vertices = load_checkpoint(folders[0]).vertices if folders else ()
        tasks = [task for vertex in vertices if vertex.key.startswith("window") for task in vertex.tasks]
        ended = [isinstance(task, Finished) for task in tasks]
        return sorted(ended) == [False, True]

    eventually(is_half_ended, 60)
    job.cancel()
    with pytest.raises(hg.JobCancelled):
        job.wait(60)
    released.set()
    monkeypatch.undo()
    return tmp_path


def windows(folder: Path, parallelism: int) -> hg.StreamEnvironment:
    env = environment(folder, parallelism)
    source = env.from_source(hg.sources.generate(numbered, rows=ROWS, batch_rows=50), watermark=hg.Watermark("at"))
    counts = source.key_by("key").window(hg.tumble("0.1 s")).aggregate(rows=hg.count())
    counts.rebalance().sink_to(hg.sinks.parquet(folder / "out"))
    return env


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_windows_go_on_though_some_of_them_had_ended(half_ended: Path, parallelism: int) -> None:
    windows(half_ended, parallelism).execute("job", resume="latest")
    rows = shown(half_ended / "out")
    assert len({(row["key"], row["window_start"]) for row in rows}) == len(rows)
    assert sum(row["rows"] for row in rows) == ROWS


def test_a_last_checkpoint_that_fails_is_tried_again_after_the_interval(tmp_path: Path) -> None:
    options = {"checkpoint_interval": 0.3, "checkpoint_timeout": 1e-6, "tolerable_failed_checkpoints": 1}
    config = hg.Config(checkpoint_dir=tmp_path, restart=hg.restart.none(), **options)
    env = hg.StreamEnvironment(parallelism=2, config=config, deployment=hg.LocalDeployment(2, processes=False))
    env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.null())
    job = env.execute_async()
    with pytest.raises(hg.CheckpointError, match="2 checkpoints in a row failed"):
        job.wait()
    first, second = job.checkpoints()
    assert second.triggered_at - first.triggered_at >= 0.299
