"""Pipelines with paced sources, which keep up until one of their places becomes slow.

Each topology is a function `(env, place)`. `place(name)` returns the function that runs at a place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import headgate as hg
from tests.observe.faults import Slow

SCHEMA = pa.schema({"k": pa.int64(), "n": pa.int64(), "t": pa.timestamp("us")})
#: Rows a second of each source.
RATE = 2000

Place = Callable[[str], Slow]


def source(env: hg.StreamEnvironment, name: str, slow: Slow, **options: Any) -> hg.DataStream:
    """Paced rows with keys `k`, numbers `n` and the times `t` at which they are due."""

    def rows(start: int, count: int) -> pa.RecordBatch:
        numbers = np.arange(start, start + count)
        times = pa.array(numbers * 1_000_000 // RATE, pa.timestamp("us"))
        return slow(pa.record_batch([pa.array(numbers % 97), pa.array(numbers), times], schema=SCHEMA))

    generated = hg.sources.generate(rows, rate=RATE, schema=SCHEMA, batch_rows=50)
    return env.from_source(generated, **options).name(name)


def line(env: hg.StreamEnvironment, place: Place) -> None:
    """A source, two functions, sums and a sink, with an exchange before each but the sink."""
    rows = source(env, "numbers", place("numbers")).rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows = rows.rebalance().map_batches(place("second"), schema=SCHEMA).name("second")
    sums = rows.key_by("n").aggregate(k=hg.sum("k")).name("sums")
    sums.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def chain(env: hg.StreamEnvironment, place: Place) -> None:
    """A function in the chain of its source, then sums and a sink."""
    rows = source(env, "numbers", place("numbers")).map_batches(place("first"), schema=SCHEMA).name("first")
    sums = rows.key_by("n").aggregate(k=hg.sum("k")).name("sums")
    sums.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def fork(env: hg.StreamEnvironment, place: Place) -> None:
    """A source that two branches read, each with a sink of its own."""
    rows = source(env, "numbers", place("numbers"))
    for name, out in (("first", "out"), ("second", "other")):
        branch = rows.rebalance().map_batches(place(name), schema=SCHEMA).name(name)
        branch.sink_to(hg.sinks.for_each_batch(place(out))).name(out)


def union(env: hg.StreamEnvironment, place: Place) -> None:
    """Two sources of one stream, a function, sums and a sink."""
    rows = source(env, "numbers", place("numbers")).union(source(env, "others", place("others")))
    rows = rows.rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows.key_by("n").aggregate(k=hg.sum("k")).name("sums").sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def skewed(env: hg.StreamEnvironment, place: Place) -> None:
    """A function behind an exchange that sends nine rows of ten to one subtask."""
    hot = place("first").subtask

    def to_one(batch: pa.RecordBatch, subtasks: int) -> pa.Array:
        return pa.array(np.where(batch["n"].to_numpy() % 10 == 0, (hot + 1) % subtasks, hot))

    rows = source(env, "numbers", place("numbers")).partition_by(to_one)
    rows.map_batches(place("first"), schema=SCHEMA).name("first").sink_to(hg.sinks.null()).name("out")


def windows(env: hg.StreamEnvironment, place: Place) -> None:
    """Windows of four seconds over 97 keys, which all end at the same time."""
    rows = source(env, "numbers", place("numbers"), watermark=hg.Watermark("t", out_of_orderness="1 s")).rebalance()
    rows = rows.map_batches(place("first"), schema=SCHEMA).name("first")
    counts = rows.key_by("k").window(hg.tumble("4 s")).aggregate(n=hg.count()).name("counts")
    counts.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


# --- not used while the rules were written


def diamond(env: hg.StreamEnvironment, place: Place) -> None:
    """A source whose two branches meet again in one function before the sink."""
    rows = source(env, "numbers", place("numbers"))
    left, right = (rows.rebalance().map_batches(place(name), schema=SCHEMA).name(name) for name in ("left", "right"))
    both = left.union(right).rebalance().map_batches(place("both"), schema=SCHEMA).name("both")
    both.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def narrow(env: hg.StreamEnvironment, place: Place) -> None:
    """A chain of two functions, an operator with one subtask behind it, and then all subtasks again."""
    rows = source(env, "numbers", place("numbers")).rebalance().map_batches(place("early"), schema=SCHEMA).name("early")
    rows = rows.map_batches(place("late"), schema=SCHEMA).name("late")
    one = rows.rebalance().map_batches(place("one"), schema=SCHEMA).name("one").set_parallelism(1)
    one.rebalance().map_batches(place("last"), schema=SCHEMA).name("last").sink_to(hg.sinks.null()).name("out")
