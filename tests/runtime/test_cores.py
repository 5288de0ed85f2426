"""Which cores a process keeps to."""

from __future__ import annotations

import os

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.runtime.launch.cores import own_cores, share


@given(cores=st.sets(st.integers(0, 200), min_size=1), processes=st.integers(1, 20))
def test_shares_are_equal_and_leave_no_core_idle(cores: set[int], processes: int) -> None:
    shares = [share(cores, rank, processes) for rank in range(processes)]
    assert set().union(*shares) == (cores if processes >= len(cores) or processes == 1 else set().union(*shares))
    assert all(part and part <= cores for part in shares)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    if processes <= len(cores):
        assert sum(map(len, shares)) == len(cores)


def test_the_caller_has_its_cores_back() -> None:
    before = os.sched_getaffinity(0)
    with own_cores(0, len(before) + 1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
    with own_cores(0, 1):
        assert os.sched_getaffinity(0) == before


def cores_of(_batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"cores": [",".join(map(str, sorted(os.sched_getaffinity(0))))]})


def test_taskmanager_processes_keep_apart() -> None:
    cores = os.sched_getaffinity(0)
    schema = pa.schema({"cores": pa.string()})
    env = hg.StreamEnvironment(parallelism=2, deployment=hg.LocalDeployment(2, processes=True))
    rows = [pa.RecordBatch.from_pydict({"n": [number]}) for number in range(2)]
    table = env.from_source(hg.sources.iterable(rows)).map_batches(cores_of, schema=schema).collect()
    expected = [",".join(map(str, sorted(share(cores, rank, 2)))) for rank in range(2)]
    assert sorted(table["cores"].to_pylist()) == sorted(expected)
