"""Whole jobs against DuckDB's answer: the same rows for every parallelism, deployment, execution mode and segment
size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headgate as hg
from tests.pipelines.pipeline_rig import assert_same, expected, stream_of

pytestmark = pytest.mark.timeout(300)

Place = Callable[..., hg.StreamEnvironment]

HOPS = """
    with hops as (
        select *, unnest(range(0, 10, 4)) as back, (epoch_us(ts) // 4000000) * 4 as latest
        from events
    ), windows as (
        select *, latest - back as starts from hops where epoch_us(ts) < (latest - back + 10) * 1000000
    )
    select name, make_timestamp(starts * 1000000) as window_start, window_start + interval 10 seconds as window_end,
        count(*) as rows, count(score) as scores, sum(number)::bigint as total, min(score) as least, max(score) as most,
        avg(score) as mean, count(distinct number) as numbers
    from windows group by name, starts
"""


#: Parallelism and segment size. Of all six pairs the test suite runs three, the others are for `make soak`.
SHAPES = [(1, 512), (2, 32 << 10), (3, 512)]
MORE_SHAPES = [pytest.param(*shape, marks=pytest.mark.soak) for shape in [(1, 32 << 10), (2, 512), (3, 32 << 10)]]

PLACES = [
    "threads",
    "processes",
    pytest.param("spark", marks=pytest.mark.xdist_group("spark local")),  # as conftest.py marks those that name Spark
    "threads in batch mode",
    pytest.param("processes in batch mode", marks=pytest.mark.soak),
]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> Place:
    """Makes environments of a parallelism that run there."""
    if request.param == "spark":
        return partial(_on_spark, request.getfixturevalue("shared_spark").on("local[3]"))
    deployment = hg.LocalDeployment(taskmanagers=2, processes="processes" in request.param)
    return partial(_local, deployment, execution_mode="batch" if "batch" in request.param else "streaming")


def _local(deployment: hg.LocalDeployment, parallelism: int, **options: Any) -> hg.StreamEnvironment:
    config = hg.Config(paranoid=True, **options)
    return hg.StreamEnvironment(parallelism=parallelism, config=config, deployment=deployment)


def _on_spark(session: SparkSession, parallelism: int, **options: Any) -> hg.StreamEnvironment:
    return hg.StreamEnvironment(session, parallelism=parallelism, config=hg.Config(paranoid=True, **options))


@pytest.fixture(scope="module")
def hops() -> pa.Table:
    return expected(HOPS)


@pytest.mark.turns(3)
@pytest.mark.parametrize(("parallelism", "segment_size"), [*SHAPES, *MORE_SHAPES])
def test_hop_windows_over_string_keys(place: Place, parallelism: int, segment_size: int, hops: pa.Table) -> None:
    """With parallelism 1, 2 and 3, in segments of 512 bytes and of 32 KiB, everywhere; half of them in `make soak`."""
    windows = (
        stream_of(place(parallelism, segment_size=segment_size))
        .key_by("name")
        .window(hg.hop("10 s", every="4 s"))
        .aggregate(
            rows=hg.count(),
            scores=hg.count("score"),
            total=hg.sum("number"),
            least=hg.min("score"),
            most=hg.max("score"),
            mean=hg.mean("score"),
            numbers=hg.count_distinct("number"),
        )
        .collect()
    )
    assert_same(windows, hops)


def test_batch_mode_everywhere(place: Place) -> None:
    counted = stream_of(place(3, execution_mode="batch")).key_by("name").window(hg.tumble("20 s"))
    wanted = expected(
        """
        select name, time_bucket(interval 20 seconds, ts, timestamp '1970-01-01') as window_start,
            window_start + interval 20 seconds as window_end, count(*) as rows
        from events group by all
        """
    )
    assert_same(counted.aggregate(rows=hg.count()).collect(), wanted)


def test_tumbling_windows_over_several_keys(place: Place) -> None:
    windows = (
        stream_of(place(3))
        .filter("name <> 'b' or name is null")
        .select("number", "ratio", doubled="number * 2")
        .key_by("number", "ratio")
        .window(hg.tumble("20 s"))
        .aggregate(rows=hg.count(), doubled=hg.sum("doubled"))
        .collect()
    )
    wanted = expected(
        """
        select number, ratio + 0.0 as ratio,
            time_bucket(interval 20 seconds, ts, timestamp '1970-01-01') as window_start,
            window_start + interval 20 seconds as window_end, count(*) as rows, sum(number * 2)::bigint as doubled
        from events where name <> 'b' or name is null group by all
        """
    )
    assert_same(windows, wanted)


def test_union_and_running_aggregates(place: Place) -> None:
    env = place(2)
    everything = stream_of(env)
    twice = everything.filter("number >= 0").union(everything.filter("number < 0"), everything.filter("score > 1"))
    totals = twice.key_by("name").aggregate(rows=hg.count(), total=hg.sum("number"), most=hg.max("score"))
    wanted = expected(
        """
        select name, count(*) as rows, sum(number)::bigint as total, max(score) as most from (
            select * from events where number is not null union all select * from events where score > 1
        ) group by name
        """
    )
    updates = totals.collect()
    last = {name: position for position, name in enumerate(updates["name"].to_pylist())}
    assert_same(updates.take(sorted(last.values())), wanted)


def test_only_the_last_row_per_key(place: Place) -> None:
    totals = stream_of(place(3)).key_by("number").aggregate(final=True, rows=hg.count()).collect()
    assert_same(totals, expected("select number, count(*) as rows from events group by number"))


def test_one_global_key(place: Place) -> None:
    total = stream_of(place(3)).key_by().aggregate(final=True, rows=hg.count(), last=hg.max("ts")).collect()
    assert_same(total, expected("select count(*) as rows, max(ts) as last from events"))


def test_windows_of_windows(place: Place) -> None:
    """A window's result belongs to its last microsecond, so a window over windows holds whole ones."""
    minutes = (
        stream_of(place(2))
        .key_by("name")
        .window(hg.tumble("10 s"))
        .aggregate(rows=hg.count())
        .select("rows")
        .key_by()
        .window(hg.tumble("20 s"))
        .aggregate(groups=hg.count(), rows=hg.sum("rows"))
        .collect()
    )
    wanted = expected(
        """
        with small as (
            select name, time_bucket(interval 10 seconds, ts, timestamp '1970-01-01') as start, count(*) as rows
            from events group by all
        )
        select time_bucket(interval 20 seconds, start, timestamp '1970-01-01') as window_start,
            window_start + interval 20 seconds as window_end, count(*) as groups, sum(rows)::bigint as rows
        from small group by all
        """
    )
    assert_same(minutes, wanted)


@pytest.mark.turns(2)
def test_a_join_with_itself(place: Place) -> None:
    """By a nullable string of up to 700 characters, with event time that no select has."""
    stream = stream_of(place(3))
    others = stream.select("name", other="number", other_score="score")
    joined = stream.select("name", "number").join(others, on="name", within=("-100 ms", "200 ms"), how="left").collect()
    wanted = expected(
        """
        select l.name, l.number, r.number as other, r.score as other_score from events l left join events r
        on l.name = r.name and r.ts between l.ts - interval 100 milliseconds and l.ts + interval 200 milliseconds
        """
    )
    assert_same(joined, wanted)
