"""`JobHandle.guarantee`: what a job guarantees for its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headgate as hg

ROWS: list[Any] = [[{"n": 1}], [{"n": 2}]]
PARTS: dict[str, Callable[[Path], Any]] = {
    "files": lambda folder: hg.sinks.parquet(folder / "out"),
    "table": lambda folder: hg.sinks.collect(),
    "function": lambda folder: hg.sinks.for_each_batch(lambda batch, info: None),
    "list": lambda folder: hg.sources.iterable(ROWS),
    "moments": lambda folder: hg.sources.iterable(lambda subtask, subtasks: ROWS, replayable=False),
}


@pytest.mark.parametrize(
    ("source", "sinks", "mode", "guarantee"),
    [
        ("list", ["files", "table"], "exactly-once", "exactly-once"),
        ("list", ["files", "table"], None, "none"),
        ("list", ["files"], "at-least-once", "at-least-once"),
        ("list", ["files", "function"], "exactly-once", "at-least-once"),
        ("moments", ["files"], "exactly-once", "none"),
    ],
)
def test_the_guarantee_depends_on_the_mode_the_sources_and_the_sinks(
    source: str, sinks: list[str], mode: str | None, guarantee: str, tmp_path: Path
) -> None:
    options = {} if mode is None else {"checkpoint_dir": tmp_path / "kept", "checkpoint_mode": mode}
    env = hg.StreamEnvironment(config=hg.Config(**options), deployment=hg.LocalDeployment(processes=False))
    stream = env.from_source(PARTS[source](tmp_path))
    for sink in sinks:
        stream.sink_to(PARTS[sink](tmp_path))
    job = env.execute_async()
    assert job.guarantee == guarantee
    job.wait(60)
    assert job.guarantee == guarantee
