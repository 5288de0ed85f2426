"""Splits that a reader reads at the same time: a resumed job knows the event time of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from tests.runtime.jobs import environment, eventually

SCHEMA = pa.schema({"at": pa.timestamp("us", "UTC"), "split": pa.string()})
SECOND = 1_000_000


def rows(split: str, *seconds: int) -> list[dict[str, Any]]:
    return [{"at": second * SECOND, "split": split} for second in seconds]


class Splits:
    """The answers of each split, one after the other. The position is the number of the next answer."""

    def __init__(self, **answers: list[list[dict[str, Any]]]) -> None:
        self.answers = answers

    def __call__(self, split: str, position: int | None) -> tuple[pa.RecordBatch, int]:
        number = position or 0
        answers = self.answers[split]
        found = answers[number] if number < len(answers) else []
        return pa.RecordBatch.from_pylist(found, SCHEMA), min(number + 1, len(answers))


def start(splits: Splits, folder: Path, seen: list[int], parallelism: int, **options: Any) -> hg.JobHandle:
    env = environment(parallelism=parallelism, checkpoint_dir=folder, checkpoint_interval="20 ms")
    source = hg.sources.poll(splits, SCHEMA, ("a", "b", "c"), interval="5 ms")
    windows = env.from_source(source, watermark=hg.Watermark("at")).key_by("split").window(hg.tumble("10 s"))
    sums = windows.aggregate(rows=hg.count())
    sums.sink_to(hg.sinks.for_each_batch(lambda batch, info: seen.extend(batch["window_start"].cast("int64").tolist())))
    return env.execute_async("splits", **options)


@pytest.mark.parametrize("parallelism", [1, 3], ids=["same", "other parallelism"])
def test_a_split_at_its_end_does_not_hold_back_windows_after_a_restart(tmp_path: Path, parallelism: int) -> None:
    splits, seen = Splits(a=[rows("a", 1, 100)], b=[rows("b", 2, 50)], c=[rows("c", 3, 300)]), list[int]()
    first = start(splits, tmp_path, seen, parallelism=1)
    eventually(lambda: len(seen) == 3)
    first.stop(drain=False)
    assert [time // SECOND for time in seen] == [0, 0, 0], "split b is at 50 s"
    splits.answers["b"].append(rows("b", 120))
    second = start(splits, tmp_path, seen, parallelism, resume="latest")
    eventually(lambda: len(seen) == 4)
    assert seen[3] == 50 * SECOND, "split a, which has no more rows, is at 100 s"
    second.stop(drain=False)
