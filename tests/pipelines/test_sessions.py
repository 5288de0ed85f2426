"""Sessions in whole jobs: DuckDB's answer at each parallelism, and the same rows after a restart from a checkpoint."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

import headgate as hg
from headgate.testing import AdvanceWatermark, Restart
from tests.pipelines.pipeline_rig import BATCH, EVENTS, ROWS, assert_same, expected, stream_of

SESSIONS = """
    with marked as (
        select *, epoch_us(ts) - lag(epoch_us(ts)) over (partition by name order by ts) < 100000 as follows from events
    ), numbered as (
        select *, sum((follows is not true)::int) over (partition by name order by ts rows unbounded preceding)
            as number_of
        from marked
    )
    select name, min(ts) as window_start, max(ts) + interval 100 milliseconds as window_end, count(*) as rows,
        sum(number)::bigint as total, max(score) as most, count(distinct number) as numbers, avg(score) as mean
    from numbered group by name, number_of
"""


def sessions(stream: hg.DataStream) -> hg.DataStream:
    return (
        stream.key_by("name")
        .window(hg.session("100 ms"))
        .aggregate(
            rows=hg.count(),
            total=hg.sum("number"),
            most=hg.max("score"),
            numbers=hg.count_distinct("number"),
            mean=hg.mean("score"),
        )
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_sessions_agree_with_duckdb(parallelism: int) -> None:
    env = hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(message_size=512, watermark_interval=0))
    found = sessions(stream_of(env)).collect()
    assert found.num_rows > 100
    assert_same(found, expected(SESSIONS))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_restart_changes_nothing(parallelism: int) -> None:
    def pipeline(env: hg.StreamEnvironment) -> hg.DataStream:
        return sessions(stream_of(env))

    given: list[pa.RecordBatch | AdvanceWatermark] = []
    for batch in EVENTS.to_batches(max_chunksize=BATCH):
        latest = max(batch["ts"].cast(pa.int64()).to_pylist())
        given += [batch, AdvanceWatermark(latest - 5_000_000)]
    restarts = [Restart(ROWS // 3, parallelism=2), Restart(ROWS // 2, parallelism=3)]
    result = hg.testing.run(pipeline, given, parallelism=parallelism, restarts=restarts)
    assert result.late_rows == 0
    assert_same(result.table("returned"), expected(SESSIONS))


def test_late_rows_go_aside() -> None:
    env = hg.StreamEnvironment(config=hg.Config(buffer_timeout=0, message_size=256, watermark_interval=0))
    windows = stream_of(env, bound=timedelta(0)).key_by("name").window(hg.session("10 ms")).late_output("late")
    taken, late = hg.sinks.collect(), hg.sinks.collect()
    counts = windows.aggregate(rows=hg.count())
    counts.sink_to(taken)
    counts.side_output("late").sink_to(late)
    result = env.execute()
    assert result.late_rows == 0
    assert late.rows > 0
    assert sum(taken.to_table()["rows"].to_pylist()) + late.rows == ROWS
