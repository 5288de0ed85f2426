"""As-of joins against a plain model: random rows, disorder, restarts with other parallelisms."""

from __future__ import annotations

import math
import random
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headgate as hg
from headgate.operators.joins import as_of_join, row_store
from tests.operators.two_streams import Subtasks, interleaved

SECOND = 1_000_000
DISORDER = 3 * SECOND
LEFT = pa.schema({"at": pa.timestamp("us", "UTC"), "k": pa.int64(), "a": pa.int64()})
RIGHT = pa.schema({"k": pa.int64(), "since": pa.timestamp("us"), "text": pa.string(), "b": pa.int64()})


def rows_of(schema: pa.Schema, seed: int, rows: int, keys: int) -> pa.RecordBatch:
    """Random rows. Of the right ones, no two have the same time."""
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 30 * SECOND, rows) if "a" in schema.names else rng.permutation(60_000)[:rows] * 500
    columns = {
        "k": pa.array(rng.integers(0, keys, rows), mask=rng.random(rows) < 0.05),
        "text": pa.array([("x", "", None, "long " * 9)[at] for at in rng.integers(0, 4, rows)]),
    }
    columns |= dict.fromkeys(("a", "b"), pa.array(np.arange(rows)))
    columns |= dict.fromkeys(("at", "since"), pa.array(times, pa.timestamp("us")))
    return pa.RecordBatch.from_arrays(
        [columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema
    )


def expected(left: pa.RecordBatch, right: pa.RecordBatch, how: str) -> list[tuple[Any, ...]]:
    times = [np.asarray(rows.column(name).cast(pa.int64())) for rows, name in ((left, "at"), (right, "since"))]
    found = []
    for row, time in zip(left.to_pylist(), times[0], strict=True):
        versions = [
            (since, version)
            for version, since in zip(right.to_pylist(), times[1], strict=True)
            if version["k"] == row["k"] is not None and since <= time
        ]
        if versions or how == "left":
            version = max(versions, key=lambda each: each[0])[1] if versions else {"text": None, "b": None}
            found.append((row["a"], row["k"], version["text"], version["b"]))
    return sorted(found)


def planned(how: Any) -> Subtasks:
    env = hg.StreamEnvironment()
    left = env.from_source(hg.sources.iterable([], schema=LEFT), watermark=hg.Watermark("at"))
    right = env.from_source(hg.sources.iterable([], schema=RIGHT), watermark=hg.Watermark("since"))
    left.join_as_of(right, on="k", how=how).sink_to(hg.sinks.null())
    return Subtasks(env._jobs.graph.graph(env._jobs.pending))


def in_order(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("a", "k", "text", "b")) for row in rows)


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", ["left", "inner"])
def test_each_row_meets_the_latest_row_at_its_time(how: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "_SMALL", 8)
    monkeypatch.setattr(as_of_join, "_LEAST_REPLACED", 16)
    rng = random.Random(seed)
    keys = rng.choice([1, 4, 60])
    left, right = (rows_of(schema, seed * 2 + n, 400, keys) for n, schema in enumerate((LEFT, RIGHT)))
    subtasks = planned(how)
    subtasks.open(rng.choice([1, 3]))
    watermark = None
    for step in interleaved(rng, (left, right), ("at", "since"), DISORDER):
        if isinstance(step, int):
            watermark = step
            subtasks.advance(step)
        else:
            subtasks.push(*step)
        if rng.random() < 0.05:
            subtasks.restart(rng.choice([1, 2, 3, 5]))
            if watermark is not None:
                subtasks.advance(watermark)
    assert in_order(subtasks.finish()) == expected(left, right, how)
    assert subtasks.late_rows == 0


def test_replaced_versions_are_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_of_join, "_LEAST_REPLACED", 100)
    subtasks = planned("inner")
    [join] = subtasks.operators
    for second in range(200):
        at = pa.array(second * SECOND + np.arange(50), pa.timestamp("us"))
        keys, numbers = pa.array(np.arange(50) % 5), pa.array(np.arange(50))
        rows = pa.RecordBatch.from_arrays([keys, at, pa.array(["text"] * 50), numbers], schema=RIGHT)
        subtasks.push(1, rows)
        subtasks.advance((second + 1) * SECOND)
    assert join.state_keys() == 5
    assert join.state_bytes() < 400_000, "an empty table of keys takes 260 kB, and all versions would take 500 kB"


def test_late_rows_are_dropped_and_late_versions_count_from_then_on() -> None:
    subtasks = planned("left")
    subtasks.advance(10 * SECOND)
    at = pa.array([5 * SECOND, 20 * SECOND], pa.timestamp("us", "UTC"))
    subtasks.push(0, pa.RecordBatch.from_arrays([at, pa.array([1, 1]), pa.array([1, 2])], schema=LEFT))
    version = [pa.array([1]), pa.array([SECOND], pa.timestamp("us")), pa.array(["x"]), pa.array([7])]
    subtasks.push(1, pa.RecordBatch.from_arrays(version, schema=RIGHT))
    assert in_order(subtasks.finish()) == [(2, 1, "x", 7)]
    assert subtasks.late_rows == 1


def test_rows_and_versions_of_one_moment_meet() -> None:
    env = hg.StreamEnvironment(deployment=hg.LocalDeployment(1, processes=False))
    at = pa.array([0, 1], pa.timestamp("s"))
    left = env.from_source(
        hg.sources.iterable([pa.record_batch({"k": [1, 1], "at": at})]), watermark=hg.Watermark("at")
    )
    right = env.from_source(
        hg.sources.iterable([pa.record_batch({"k": [1, 1], "at": at, "n": [5, 6]})]), watermark=hg.Watermark("at")
    )
    joined = left.select("k").join_as_of(right.select("k", "n"), on="k")
    assert joined.schema.names == ["k", "n"]
    assert sorted(joined.collect()["n"].to_pylist()) == [5, 6]
    hours = joined.key_by("k").window(hg.tumble("1 s")).aggregate(n=hg.sum("n")).collect()
    assert sorted(hours["n"].to_pylist()) == [5, 6], "the hidden event time is still that of the left rows"


#: Values of keys. Of floats, NaN equals NaN and -0.0 equals 0.0. A null equals nothing.
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "s": (pa.string(), ["", "x", "long " * 9, "long " * 9 + "x", None]),
    "f": (pa.float64(), [math.nan, 0.0, -0.0, 1.5, -math.inf, None]),
    "d": (pa.date32(), [date(1969, 12, 31), date(2026, 1, 1), None]),
}


@pytest.mark.parametrize("on", [["s"], ["f"], ["s", "f"], ["f", "d", "s"]], ids="".join)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_meet_by_keys_of_all_types(on: list[str], parallelism: int) -> None:
    rng = random.Random(f"{on} {parallelism}")
    sides = []
    for time, number in (("at", "a"), ("since", "b")):
        columns = {name: pa.array(rng.choices(KEYS[name][1], k=150), KEYS[name][0]) for name in on}
        times = pa.array([at * 1000 for at in rng.sample(range(30_000), 150)], pa.timestamp("us"))
        sides.append(pa.record_batch({**columns, time: times, number: list(range(150))}))
    left, right = sides
    env = hg.StreamEnvironment()
    streams = [
        env.from_source(hg.sources.iterable([], schema=side.schema), watermark=hg.Watermark(time))
        for side, time in ((left, "at"), (right, "since"))
    ]
    streams[0].join_as_of(streams[1], on=on).sink_to(hg.sinks.null())
    subtasks = Subtasks(env._jobs.graph.graph(env._jobs.pending), parallelism)
    for step, each in enumerate(interleaved(rng, (left, right), ("at", "since"), DISORDER)):
        if isinstance(each, int):
            subtasks.advance(each)
        else:
            subtasks.push(*each)
        if step == 10:
            subtasks.restart(4 - parallelism)
    found = sorted((row["a"], row["b"]) for row in subtasks.finish())
    assert found == sorted((row["a"], latest(row, right, on)) for row in left.to_pylist())
    assert any(number is not None for _, number in found)


def latest(row: dict[str, Any], versions: pa.RecordBatch, on: list[str]) -> int | None:
    """Return the number of the row's version, or None."""
    partners = [
        version
        for version in versions.to_pylist()
        if version["since"] <= row["at"] and all(equal(version[name], row[name]) for name in on)
    ]
    return max(partners, key=lambda version: version["since"])["b"] if partners else None


def equal(one: Any, other: Any) -> bool:
    return one is not None and (one == other or (one != one and other is not None and other != other))
