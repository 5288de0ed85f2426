"""Columns whose rows Arrow cannot take come as plain ones: views as large columns, runs as their values."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headgate as hg
from tests.arrow_types import runs

WORDS = ["weir", None, "a word that is too long for the view itself", "weir"]
PLAIN = pa.schema({"n": pa.int64(), "word": pa.large_string(), "bytes": pa.large_binary()})
VIEWS = pa.record_batch(
    {
        "n": pa.array(range(4)),
        "word": pa.array(WORDS, pa.string_view()),
        "bytes": pa.array([word and word.encode() for word in WORDS], pa.binary_view()),
    }
)


def views(env: hg.StreamEnvironment) -> hg.DataStream:
    return env.from_source(hg.sources.iterable([VIEWS, VIEWS]))


def test_partitioned_by_key_and_filtered() -> None:
    env = hg.StreamEnvironment(parallelism=2)
    assert views(env).schema == PLAIN
    kept = views(env).filter("n <> 1 and word = 'weir'").collect()
    assert kept["n"].to_pylist() == [0, 3, 0, 3]
    assert kept.schema == PLAIN
    counted = views(env).key_by("n").aggregate(final=True, words=hg.count("word"), last=hg.max("word")).collect()
    assert counted.sort_by("n").to_pylist() == [
        {"n": number, "words": 2 if word else 0, "last": word} for number, word in enumerate(WORDS)
    ]


def test_a_function_may_return_views() -> None:
    env = hg.StreamEnvironment(parallelism=2)
    back = views(env).map_batches(lambda batch: VIEWS, schema=VIEWS.schema).rebalance().collect()
    assert back.schema == PLAIN
    assert sorted(back["n"].to_pylist()) == sorted([0, 1, 2, 3] * 2)


RUNS = runs([2, 3], pa.array(["a", None]))


def test_run_end_encoded_columns_come_as_their_values() -> None:
    batch = pa.record_batch({"x": RUNS, "n": pa.array([0, 1, 2])})
    env = hg.StreamEnvironment(parallelism=2)
    stream = env.from_source(hg.sources.iterable([batch, batch.slice(1)]))
    assert stream.schema == pa.schema({"x": pa.string(), "n": pa.int64()})
    counted = stream.key_by("x").aggregate(final=True, rows=hg.count()).collect().to_pylist()
    assert sorted(counted, key=str) == [{"x": "a", "rows": 3}, {"x": None, "rows": 2}]
    back = stream.map_batches(lambda _: batch, schema=batch.schema).rebalance().collect()
    assert sorted(back["n"].to_pylist()) == sorted([0, 1, 2] * 2)
    assert back.schema == stream.schema


def test_runs_within_other_columns_are_refused() -> None:
    column = pa.StructArray.from_arrays([RUNS], ["r"])
    with pytest.raises(hg.PlanError, match="column 'x' is struct<r: run_end_encoded.* decode it to plain values"):
        hg.StreamEnvironment().from_source(hg.sources.iterable([pa.record_batch({"x": column})]))
