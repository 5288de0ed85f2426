"""Records of a hundred megabytes go through an exchange whose buffers hold a small part of one."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import headgate as hg
from tests.exchange.test_gathering import file_size_limit
from tests.runtime.jobs import environment, error_of, files_below

MB = 1 << 20
SCHEMA = pa.schema({"n": pa.int64(), "value": pa.large_binary()})


def long_rows(env: hg.StreamEnvironment, size: int, rows: int = 2) -> hg.DataStream:
    def made(start: int, n: int) -> pa.RecordBatch:
        values = [bytes([65 + start + i]) * size for i in range(n)]
        return pa.record_batch([pa.array(range(start, start + n), pa.int64()), pa.array(values, pa.large_binary())],
                               schema=SCHEMA)  # fmt: skip

    return env.from_source(hg.sources.generate(made, rows=rows, batch_rows=1))


def measured(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `n`, the length of the value, and whether all its bytes are the right ones."""
    values = batch.column("value").to_pylist()
    numbers = batch.column("n").to_pylist()
    return pa.record_batch(
        {
            "n": pa.array(numbers, pa.int64()),
            "bytes": pa.array(map(len, values), pa.int64()),
            "right": pa.array(
                [value.count(65 + n) == len(value) for n, value in zip(numbers, values, strict=True)], pa.bool_()
            ),
        }
    )


MEASURED = pa.schema({"n": pa.int64(), "bytes": pa.int64(), "right": pa.bool_()})


@pytest.mark.turns(2)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("processes", [False, True])
def test_a_record_of_100_mb(processes: bool, tmp_path: Path) -> None:
    env = environment(processes=processes, network_memory="4 mb", spill_dir=str(tmp_path))
    table = long_rows(env, 100 * MB).rebalance().map_batches(measured, schema=MEASURED).collect()
    assert table.sort_by("n").to_pylist() == [{"n": n, "bytes": 100 * MB, "right": True} for n in (0, 1)]
    assert os.listdir(tmp_path) == []


def test_they_are_counted_as_gathered_in_files(tmp_path: Path) -> None:
    env = environment(spill_dir=str(tmp_path))
    long_rows(env, 6 * MB, rows=4).rebalance().map_batches(measured, schema=MEASURED).sink_to(hg.sinks.null())
    tasks = env.execute().metrics["tasks"].values()
    assert sum(task["messages_spilled"] for task in tasks) == 4
    assert all(task["gathering_bytes"] == task["gathering_file_bytes"] == 0 for task in tasks)


def test_no_room_for_them_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    env = environment(spill_dir=str(tmp_path))
    long_rows(env, 6 * MB).rebalance().map_batches(measured, schema=MEASURED).sink_to(hg.sinks.null())
    with file_size_limit(MB):
        error = error_of(env.execute_async("long"))
    assert type(error) is hg.SpillError
    assert "set the option spill_dir" in error.message
    assert error.job == "long"
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("processes", [False, True])
def test_a_folder_for_them_that_is_not_there_ends_the_job_before_it_begins(processes: bool, tmp_path: Path) -> None:
    """Also where no record is long: the first that is may come after days."""
    env = environment(processes=processes, spill_dir=str(tmp_path / "nowhere"))
    long_rows(env, 1).rebalance().map_batches(measured, schema=MEASURED).sink_to(hg.sinks.null())
    error = error_of(env.execute_async())
    assert type(error) is hg.SpillError
    assert "nowhere cannot be used: No such file or directory" in error.message
