"""Windows by count in whole jobs: DuckDB's answer at each parallelism, in batch mode, and the same rows after restarts.

All rows of a key come from one source subtask, so that their order is certain.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from headgate.testing import Restart
from tests.pipelines.pipeline_rig import BATCH, EVENTS, ROWS, assert_same, expected, stream_of
from tests.runtime.jobs import eventually

WINDOWS = {
    "tumbling": hg.count_window(50),
    "partial": hg.count_window(70, partial=True),
    "overlapping": hg.count_window(30, every=20),
    "at each row": hg.count_window(10, every=1),
}


def sql(windows: Any) -> str:
    size, every = windows.size, windows.every
    rest = f"or (w = total // {every} and total % {every} > 0)" if windows.partial else ""
    return f"""
        with placed as (
            select *, row_number() over () as place from events
        ), counted as (
            select *, count(*) over (partition by name) as total,
                row_number() over (partition by name order by place) - 1 as i
            from placed
        ), windowed as (
            select *, unnest(range(i // {every}, (i + {size}) // {every})) as w from counted
        )
        select name, count(*) as rows, sum(number)::bigint as total, max(score) as most, avg(score) as mean,
            count(distinct number) as numbers, arg_min(ts, place) as earliest, arg_max(ts, place) as latest
        from windowed where (w + 1) * {every} <= windowed.total {rest} group by name, w
    """


def counted(stream: hg.DataStream, windows: Any) -> hg.DataStream:
    return (
        stream.key_by("name")
        .window(windows)
        .aggregate(
            rows=hg.count(),
            total=hg.sum("number"),
            most=hg.max("score"),
            mean=hg.mean("score"),
            numbers=hg.count_distinct("number"),
            earliest=hg.first("ts"),
            latest=hg.last("ts"),
        )
    )


def rows_of_one_source(env: hg.StreamEnvironment) -> hg.DataStream:
    return env.from_source(hg.sources.iterable(EVENTS.to_batches(max_chunksize=BATCH))).set_parallelism(1)


@pytest.mark.turns(6)
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_agree_with_duckdb(parallelism: int, kind: str) -> None:
    threads = hg.LocalDeployment(processes=False)
    config = hg.Config(message_size=512)
    env = hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=threads)
    found = counted(rows_of_one_source(env), WINDOWS[kind]).collect()
    assert found.num_rows > 40
    assert_same(found, expected(sql(WINDOWS[kind])))


def test_batch_mode_has_the_same_windows() -> None:
    env = hg.StreamEnvironment(parallelism=3, config=hg.Config(execution_mode="batch"))
    found = counted(rows_of_one_source(env), WINDOWS["overlapping"]).collect()
    assert_same(found, expected(sql(WINDOWS["overlapping"])))


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", WINDOWS)
def test_restarts_with_more_and_fewer_subtasks_change_nothing(kind: str) -> None:
    given: list[pa.RecordBatch] = EVENTS.to_batches(max_chunksize=77)
    restarts = [Restart(ROWS // 4, parallelism=3), Restart(ROWS // 2, parallelism=1), Restart(ROWS * 3 // 4)]
    result = hg.testing.run(
        lambda env: counted(rows_of_one_source(env), WINDOWS[kind]), given, parallelism=2, restarts=restarts
    )
    assert_same(result.table("returned"), expected(sql(WINDOWS[kind])))


def numbered(start: int, n: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + n)
    return pa.RecordBatch.from_arrays([pa.array(numbers % 3), pa.array(numbers)], names=["key", "number"])


def test_a_savepoint_has_the_incomplete_windows_and_a_drained_job_drops_them(tmp_path: Path) -> None:
    def started(parallelism: int, resume: str | None = None) -> hg.JobHandle:
        threads = hg.LocalDeployment(processes=False)
        config = hg.Config(checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="1 h")
        env = hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=threads)
        rows = env.from_source(hg.sources.generate(numbered, rate=20_000)).set_parallelism(1)
        windows = rows.key_by("key").window(hg.count_window(100))
        found = windows.aggregate(rows=hg.count(), least=hg.min("number"), most=hg.max("number"))
        found.sink_to(hg.sinks.parquet(tmp_path / "out"))
        return env.execute_async("windows", resume)

    def stopped(job: hg.JobHandle, rows: int, **how: Any) -> str | None:
        eventually(lambda: job.status() == "RUNNING" and job.metrics()["rows_in"] >= rows, 60)
        return job.stop(timeout=60, **how)

    first = started(2)
    savepoint = stopped(first, 2_000, savepoint=tmp_path / "kept")
    second = started(3, savepoint)
    stopped(second, first.wait().rows_in + 2_000, savepoint=tmp_path / "kept", drain=True)
    read = second.wait().rows_in
    wanted = [
        {"key": key, "rows": 100, "least": least, "most": least + 297}
        for key in range(3)
        for least in range(key, read, 300)
        if least + 297 < read
    ]
    found = ds.dataset(tmp_path / "out").to_table().sort_by([("key", "ascending"), ("least", "ascending")])
    assert found.to_pylist() == wanted


def test_the_rows_of_windows_can_be_ranked() -> None:
    env = hg.StreamEnvironment(parallelism=2)
    found = rows_of_one_source(env).key_by("name").window(hg.count_window(40)).max_by("ts").select("name", "ts")
    query = """
        with placed as (
            select name, ts, row_number() over () as place from events
        ), counted as (
            select *, (row_number() over (partition by name order by place) - 1) // 40 as w from placed
        ) select name, max(ts) as ts from counted group by name, w having count(*) = 40
    """
    assert_same(found.collect(), expected(query))


def test_mistakes_are_found_at_the_call() -> None:
    stream = rows_of_one_source(hg.StreamEnvironment())
    windows = stream.key_by("name").window(hg.count_window(3))
    with pytest.raises(
        hg.PlanError, match="late_output: no row is late for count_window\\(3\\), because it does not go"
    ):
        windows.late_output("late")
    with pytest.raises(hg.PlanError, match="allowed_lateness: no row is late"):
        windows.allowed_lateness("1 s")
    with pytest.raises(hg.PlanError, match="window: there is no event time; count_window\\(3\\) does not go by time"):
        windows.aggregate(rows=hg.count()).key_by("name").window(hg.tumble("1 s"))
    with pytest.raises(hg.PlanError, match="the rows of 'aggregate' replace one another"):
        stream.key_by("name").aggregate(rows=hg.count()).key_by("name").window(hg.count_window(3)).max_by("rows")
    timed = stream_of(hg.StreamEnvironment())
    with pytest.raises(hg.PlanError, match="window=count_window\\(3\\) must be hg.tumble"):
        timed.join(timed, on="name", window=hg.count_window(3), suffix="_2")  # type: ignore[arg-type]


def test_the_plan_shows_windows_whose_rows_are_append_only(capsys: pytest.CaptureFixture[str]) -> None:
    env = hg.StreamEnvironment(parallelism=2)
    counted(rows_of_one_source(env), WINDOWS["tumbling"]).sink_to(hg.sinks.null())
    env.explain()
    plan = capsys.readouterr().out
    assert f"2  window ({WINDOWS['tumbling']}) -> null" in plan
    assert "upserts" not in plan
