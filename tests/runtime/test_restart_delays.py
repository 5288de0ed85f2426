"""How long a job that fails waits before it starts again."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

import headgate as hg
from tests.exactly_once import build, committed, environment, expected, rows


def test_delays_grow_from_failure_to_failure(tmp_path: Path) -> None:
    failed: list[float] = []

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(failed) < 4:
            failed.append(time.monotonic())
            raise ValueError("again")
        return batch

    strategy = hg.restart.exponential(initial="50 ms", max="100 ms", factor=2)
    env = environment(tmp_path, hg.LocalDeployment(1, processes=False), 1, restart=strategy)
    assert build(env, tmp_path, fails, source=rows(rate=None)).execute().restarts == 4
    assert committed(tmp_path) == expected()
    waited = [after - before for before, after in pairwise([*failed, time.monotonic()])]
    assert all(seconds >= least for seconds, least in zip(waited, (0.0, 0.05, 0.1, 0.1), strict=True)), waited
