"""An exchange between 32 and 32 subtasks, 1,024 channels, of which half cross one connection each way."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headgate as hg

ROWS = 20_000


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_every_row_arrives_once(mode: str) -> None:
    def numbers(start: int, n: int) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(range(start, start + n), pa.int64())})

    env = hg.StreamEnvironment(
        parallelism=32,
        config=hg.Config(execution_mode=mode, segment_size="4 kb", network_memory="32 mb"),
        deployment=hg.LocalDeployment(taskmanagers=2, processes=False),
    )
    keyed = env.from_source(hg.sources.generate(numbers, rows=ROWS, batch_rows=500)).key_by("n")
    counts = (
        keyed.aggregate(final=True, rows=hg.count()).key_by().aggregate(final=True, keys=hg.count(), sum=hg.sum("n"))
    )
    assert counts.collect().to_pylist() == [{"keys": ROWS, "sum": ROWS * (ROWS - 1) // 2}]
