"""Rows are late beyond the bound, as far as the watermark has come, and no others; they are dropped or put aside."""

from __future__ import annotations

import logging
from datetime import timedelta

import pyarrow as pa
import pytest

import headgate as hg
from tests.pipelines.pipeline_rig import EVENTS, ROWS, assert_same, expected, stream_of

#: Rows and watermarks travel in many small steps, so that watermarks do not come when all rows are there already.
SMALL_STEPS = hg.Config(buffer_timeout=0, message_size=256, watermark_interval=0)
NO_BOUND = timedelta(0)
HOPS = """
    with hops as (
        select *, unnest(range(0, 10, 4)) as back, (epoch_us(ts) // 4000000) * 4 as latest from events
    ), windows as (
        select *, latest - back as starts from hops where epoch_us(ts) < (latest - back + 10) * 1000000
    )
    select name, make_timestamp(starts * 1000000) as window_start, window_start + interval 10 seconds as window_end,
        count(*) as rows, sum(number)::bigint as total, max(score) as most
    from windows group by name, starts
"""


def environment(parallelism: int) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(parallelism=parallelism, config=SMALL_STEPS)


def last_of_each(updates: pa.Table) -> pa.Table:
    """The last row of each key and window."""
    keys = zip(updates["name"].to_pylist(), updates["window_start"].to_pylist(), strict=True)
    return updates.take(pa.array(sorted({key: position for position, key in enumerate(keys)}.values()), pa.int64()))


def test_rows_beyond_the_bound_are_counted_as_late(caplog: pytest.LogCaptureFixture) -> None:
    env = environment(2)
    source = stream_of(env, bound=timedelta(seconds=1)).set_parallelism(1)
    collected = hg.sinks.collect()
    source.key_by("name").window(hg.tumble("1 s")).aggregate(rows=hg.count()).name("seconds").sink_to(collected)
    with caplog.at_level(logging.WARNING):
        result = env.execute("late rows")
    assert result.rows_in == ROWS
    assert result.late_rows > 0
    assert sum(collected.to_table()["rows"].to_pylist()) + result.late_rows == ROWS
    [*_, last] = [record.getMessage() for record in caplog.records]
    assert last.startswith(f"seconds: {result.late_rows} rows")
    assert "came late and were dropped (out_of_orderness=1 s, allowed_lateness=0 s)" in last


def test_no_row_is_late_within_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    env = environment(2)
    collected = hg.sinks.collect()
    stream_of(env).key_by("name").window(hg.tumble("1 s")).aggregate(rows=hg.count()).sink_to(collected)
    result = env.execute("no late rows")
    assert result.late_rows == 0
    assert sum(collected.to_table()["rows"].to_pylist()) == ROWS
    assert caplog.records == []


@pytest.mark.turns(3)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_with_lateness_allowed_the_last_row_of_a_window_is_the_whole_of_it(parallelism: int) -> None:
    """The watermark runs ahead of most rows, and still none is lost."""
    windows = stream_of(environment(parallelism), bound=NO_BOUND).key_by("name").window(hg.hop("10 s", every="4 s"))
    updates = windows.allowed_lateness("1 min").aggregate(rows=hg.count(), total=hg.sum("number"), most=hg.max("score"))
    assert_same(last_of_each(updates.collect()), expected(HOPS))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_late_rows_go_aside_as_they_came(parallelism: int, caplog: pytest.LogCaptureFixture) -> None:
    env = environment(parallelism)
    windows = stream_of(env, bound=NO_BOUND).set_parallelism(1).key_by("name").window(hg.tumble("1 s"))
    counts = windows.late_output("late").aggregate(rows=hg.count(), total=hg.sum("number"))
    taken, late = hg.sinks.collect(), hg.sinks.collect()
    counts.sink_to(taken)
    counts.side_output("late").sink_to(late)
    result = env.execute()
    table = late.to_table()
    assert table.schema == EVENTS.schema
    assert result.late_rows == 0
    assert sum(taken.to_table()["rows"].to_pylist()) + table.num_rows == ROWS
    totals = [sum(filter(None, column.to_pylist())) for column in (taken.to_table()["total"], table["number"])]
    assert sum(totals) == sum(filter(None, EVENTS["number"].to_pylist()))
    assert caplog.records == []


def test_late_rows_can_be_windowed_again() -> None:
    """Nothing but another watermark makes them late: as rows of a stream they have their event time, even hidden."""
    env = environment(2)
    windows = stream_of(env, bound=NO_BOUND).set_parallelism(1).select("name").key_by("name").window(hg.tumble("1 s"))
    late = windows.late_output("late").aggregate(rows=hg.count()).side_output("late")
    assert late.schema.names == ["name"]
    put_aside, again = hg.sinks.collect(), hg.sinks.collect()
    late.sink_to(put_aside)
    late.key_by("name").window(hg.tumble("1 h")).allowed_lateness("1 h").aggregate(rows=hg.count()).sink_to(again)
    env.execute()
    assert sum(last_of_each(again.to_table())["rows"].to_pylist()) == put_aside.rows


def test_impossible_lateness() -> None:
    windows = stream_of(environment(1)).key_by("name").window(hg.tumble("1 s"))
    for lateness in ("-1 s", "soon"):
        with pytest.raises(hg.PlanError, match="allowed_lateness: "):
            windows.allowed_lateness(lateness)
    with pytest.raises(hg.PlanError, match="late_output: the tag must be a string"):
        windows.late_output("")
    with pytest.raises(hg.PlanError, match="'window' has no side output 'late'"):
        windows.aggregate(rows=hg.count()).side_output("late")
