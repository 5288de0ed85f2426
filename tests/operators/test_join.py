"""Joins of two streams against DuckDB's: random rows, disorder, restarts with other parallelisms."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.joins import row_parts, sorted_runs
from headgate.operators.joins.join import How
from tests.operators.two_streams import Subtasks, interleaved

SECOND = 1_000_000
DISORDER = 3 * SECOND
START = 1_700_000_000 * SECOND
HOWS: tuple[How, ...] = ("inner", "left", "right", "full")
Build = Callable[[hg.DataStream, hg.DataStream, How], hg.DataStream]
LEFT = pa.schema(
    {
        "k": pa.int64(),
        "name": pa.string(),
        "a": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "until": pa.timestamp("us", "UTC"),
    }
)
RIGHT = pa.schema({"name": pa.string(), "b": pa.int64(), "k": pa.int64(), "came": pa.timestamp("ms")})
#: How a join is written, and its condition in SQL beside equal keys.
CASES: dict[str, tuple[Build, str]] = {
    "both sides": (
        lambda left, right, how: left.join(right, on=["k", "name"], within=("-2 s", "1 s"), how=how),
        "r.came between l.at - interval 2 second and l.at + interval 1 second",
    ),
    "before": (
        lambda left, right, how: left.join(right, on=["k", "name"], within=("-5 s", "-1 s"), how=how),
        "r.came between l.at - interval 5 second and l.at - interval 1 second",
    ),
    "after": (
        lambda left, right, how: left.join(right, on=["k", "name"], within=("1 s", "4 s"), how=how),
        "r.came between l.at + interval 1 second and l.at + interval 4 second",
    ),
    "at once": (
        lambda left, right, how: left.join(right, on=["k", "name"], within=("0 s", "0 s"), how=how),
        "r.came = l.at",
    ),
    "columns": (
        lambda left, right, how: left.join(right, on=["k", "name"], within=("at", "until"), how=how),
        "r.came between l.at and l.until",
    ),
    "window": (
        lambda left, right, how: left.join(right, on=["k", "name"], window=hg.tumble("2 s"), how=how),
        "floor(epoch(r.came) / 2) = floor(epoch(l.at) / 2)",
    ),
}


def rows_of(schema: pa.Schema, seed: int, rows: int, keys: int, seconds: int) -> pa.RecordBatch:
    """Random rows; `a` or `b` numbers them. Times are whole milliseconds, many of them equal."""
    rng = np.random.default_rng(seed)
    at = START + rng.integers(0, seconds * 20, rows) * 50_000
    columns: dict[str, pa.Array] = {
        "k": pa.array(rng.integers(0, keys, rows), mask=rng.random(rows) < 0.05),
        "name": pa.array([("x", "", None, "long " * 9)[at] for at in rng.choice(4, rows, p=[0.6, 0.2, 0.05, 0.15])]),
        "until": pa.array(at + rng.integers(-1, 5, rows) * SECOND, mask=rng.random(rows) < 0.1),
    }
    columns |= dict.fromkeys(("a", "b"), pa.array(np.arange(rows))) | dict.fromkeys(("at", "came"), pa.array(at))
    arrays = []
    for field in schema:
        array = columns[field.name]
        if pa.types.is_timestamp(field.type):
            array = array.cast(pa.timestamp("us")).cast(pa.timestamp(field.type.unit)).cast(field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def duckdbs(left: pa.RecordBatch, right: pa.RecordBatch, how: str, condition: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        for name, rows in (("lefts", left), ("rights", right)):
            is_time = [pa.types.is_timestamp(kind) for kind in rows.schema.types]
            plain = [
                column.cast(pa.timestamp("us")) if timed else column
                for column, timed in zip(rows, is_time, strict=True)
            ]
            database.register(name, pa.table(plain, rows.schema.names))
        condition = condition.replace("l.at", 'l."at"')
        query = f"""
            select coalesce(l.k, r.k) as k, coalesce(l.name, r.name) as name, a, b
            from lefts l {how} join rights r on l.k = r.k and l.name = r.name and {condition}
        """
        return in_order(database.sql(query).to_arrow_table().to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    picked = [tuple(row[name] for name in ("k", "name", "a", "b")) for row in rows]
    return sorted(
        picked, key=lambda row: tuple((value is None, value if value is not None else 0) for value in row[2:])
    )


def planned(build: Build, how: How) -> Subtasks:
    env = hg.StreamEnvironment()
    left = env.from_source(hg.sources.iterable([], schema=LEFT), watermark=hg.Watermark("at"))
    right = env.from_source(hg.sources.iterable([], schema=RIGHT), watermark=hg.Watermark("came"))
    build(left, right, how).sink_to(hg.sinks.null())
    return Subtasks(env._jobs.graph.graph(env._jobs.pending))


@pytest.mark.turns(2)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 3), marks=pytest.mark.soak)], ids=["one", "two"])
@pytest.mark.parametrize("part", [row_parts._MOST_ROWS, 40], ids=["one part", "parts"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("case", CASES)
def test_a_join_is_that_of_duckdb(
    case: str, how: How, part: int, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorted_runs, "_SMALL", 16)  # so that there are several runs
    monkeypatch.setattr(sorted_runs, "_MOST_CANDIDATES", 64)
    monkeypatch.setattr(row_parts, "_MOST_ROWS", part)
    build, condition = CASES[case]
    for seed in seeds:
        rng = random.Random(seed)
        keys, seconds = rng.choice([(1, 40), (3, 15), (40, 30)])
        left, right = (rows_of(schema, seed * 2 + n, 250, keys, seconds) for n, schema in enumerate((LEFT, RIGHT)))
        subtasks = planned(build, how)
        subtasks.open(rng.choice([1, 3]))
        watermark = None
        for step in interleaved(rng, (left, right), ("at", "came"), DISORDER):
            if isinstance(step, int):
                watermark = step
                subtasks.advance(step)
            else:
                subtasks.push(*step)
            if rng.random() < 0.03:
                subtasks.restart(rng.choice([1, 2, 3, 5]))
                if watermark is not None:  # sources send their watermark again
                    subtasks.advance(watermark)
        assert in_order(subtasks.finish()) == duckdbs(left, right, how, condition)
        assert subtasks.late_rows == 0


def test_state_leaves_with_the_watermark() -> None:
    subtasks = planned(CASES["both sides"][0], "inner")
    [join] = subtasks.operators
    left, right = rows_of(LEFT, 1, 1000, 50, 1), rows_of(RIGHT, 2, 1000, 50, 1)
    subtasks.push(0, left)
    subtasks.push(1, right)
    held, size = join.state_keys(), join.state_bytes()
    assert 1700 < held < 2000, "only rows with a null in their key are dropped at once"
    subtasks.advance(START + SECOND)
    assert join.state_keys() == held
    subtasks.advance(START + 2 * SECOND)  # left rows would have partners at most 1 s later, right rows 2 s
    assert 850 < join.state_keys() < 1000
    subtasks.advance(START + 4 * SECOND)
    assert join.state_keys() == 0
    assert join.state_bytes() < size / 100


def test_late_rows_are_counted() -> None:
    subtasks = planned(CASES["both sides"][0], "full")
    subtasks.advance(START + 100 * SECOND)
    late = rows_of(LEFT, 1, 100, 5, 10).filter(pa.array([True] * 100))
    subtasks.push(0, late)
    subtasks.push(1, rows_of(RIGHT, 1, 50, 5, 10))
    assert subtasks.finish() == []
    assert subtasks.late_rows == 150


def test_nan_and_negative_zero_are_keys() -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(1, processes=False))
    at = pa.array([0, 0, 0, 0], pa.timestamp("s"))
    keys = pa.array([math.nan, -0.0, 1.5, None])
    rows = pa.record_batch({"x": keys, "at": at, "n": [1, 2, 3, 4]})
    other = pa.record_batch({"x": pa.array([1.0, 0.0, math.nan, None]), "m": [1, 2, 3, 4], "t": at})
    left = env.from_source(hg.sources.iterable([rows]), watermark=hg.Watermark("at"))
    right = env.from_source(hg.sources.iterable([other]), watermark=hg.Watermark("t"))
    joined = left.join(right, on="x", within=("0 s", "0 s")).select("n", "m").collect()
    assert sorted(map(tuple, (row.values() for row in joined.to_pylist()))) == [(1, 3), (2, 2)]


class Clock:
    """A clock in seconds that the test sets."""

    now = START / SECOND

    def __call__(self) -> float:
        return self.now


def by_clock(clock: Clock, ttl: str) -> Subtasks:
    env = hg.StreamEnvironment()
    left, right = (env.from_source(hg.sources.iterable([], schema=schema)) for schema in (LEFT, RIGHT))
    left.join(right, on=["k", "name"], ttl=ttl).sink_to(hg.sinks.null())
    subtasks = Subtasks(env._jobs.graph.graph(env._jobs.pending))
    factory = subtasks.factory
    assert isinstance(factory, partial)
    subtasks.factory = partial(factory, clock=clock)
    subtasks.open(1)
    return subtasks


def test_rows_meet_if_they_arrive_within_the_time_to_live() -> None:
    """Whatever their event times are, and through restarts with other parallelisms."""
    rng, clock = random.Random(3), Clock()
    subtasks = by_clock(clock, "2 s")
    left, right = rows_of(LEFT, 5, 600, 8, 1), rows_of(RIGHT, 6, 600, 8, 1)
    arrivals: list[list[tuple[float, dict[str, Any]]]] = [[], []]
    for step in range(60):
        clock.now += rng.choice([0.0, 0.1, 0.5])
        side, rows = rng.choice([(0, left), (1, right)])
        batch = rows.slice(step * 10, 10)
        arrivals[side] += [(clock.now, row) for row in batch.to_pylist()]
        subtasks.push(side, batch)
        if rng.random() < 0.1:
            subtasks.restart(rng.choice([1, 2, 3]))
    wanted = [
        {**left_row, **right_row}
        for at, left_row in arrivals[0]
        for came, right_row in arrivals[1]
        if abs(round(at * 1e6) - round(came * 1e6)) <= 2 * SECOND
        and left_row["k"] == right_row["k"] is not None
        and left_row["name"] == right_row["name"] is not None
    ]
    assert in_order(subtasks.finish()) == in_order(wanted)
    assert len(wanted) > 500


def test_by_the_clock_state_leaves_without_rows() -> None:
    clock = Clock()
    subtasks = by_clock(clock, "8 s")
    [join] = subtasks.operators
    assert join.next_time() is None, "an empty join needs no timer"
    subtasks.push(0, rows_of(LEFT, 1, 100, 5, 1))
    assert join.next_time() == START + SECOND
    clock.now += 9.5
    join.on_processing_time()
    assert join.state_keys() == 0
    assert join.next_time() is None
