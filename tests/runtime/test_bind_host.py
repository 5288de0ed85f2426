"""Where a job listens."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headgate as hg


@pytest.mark.parametrize("bind_host", ["127.0.0.2", "0.0.0.0"])
@pytest.mark.parametrize("processes", [False, True])
def test_a_job_runs_on_the_address_it_is_given(bind_host: str, processes: bool) -> None:
    deployment = hg.LocalDeployment(2, processes)
    env = hg.StreamEnvironment(parallelism=2, config=hg.Config(bind_host=bind_host), deployment=deployment)
    numbers = [pa.RecordBatch.from_pydict({"n": list(range(100))})]
    table = env.from_source(hg.sources.iterable(numbers)).key_by("n").aggregate(rows=hg.count(), final=True).collect()
    assert sorted(table["n"].to_pylist()) == list(range(100))
