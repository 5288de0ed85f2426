"""More pipelines with paced sources, which were written after the rules: joins, keyed state, lookups, row functions.

Each topology is a function `(env, place)`, as in `topologies.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

import headgate as hg
from tests.observe.faults import Slow
from tests.observe.topologies import SCHEMA, Place, source

WATERMARK = hg.Watermark("t", out_of_orderness="500 ms")


def joined(env: hg.StreamEnvironment, place: Place) -> None:
    """Two streams that meet in an interval join, each behind a function."""
    left, right = (
        source(env, numbers, place(numbers), watermark=WATERMARK)
        .rebalance()
        .map_batches(place(name), schema=SCHEMA)
        .name(name)
        for numbers, name in (("numbers", "left"), ("others", "right"))
    )
    pairs = left.join(right, on="n", within=("-1 s", "1 s"), suffix="_right").name("pairs")
    after = pairs.map_batches(place("after"), schema=pairs.schema).name("after")
    after.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def sessions(env: hg.StreamEnvironment, place: Place) -> None:
    """Sessions of keys that never pause."""
    rows = source(env, "numbers", place("numbers"), watermark=WATERMARK).rebalance()
    rows = rows.map_batches(place("first"), schema=SCHEMA).name("first")
    visits = rows.key_by("k").window(hg.session("1 s")).aggregate(n=hg.sum("n")).name("visits")
    visits.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def looked_up(env: hg.StreamEnvironment, place: Place) -> None:
    """A lookup in a function, which answers one request after the other."""
    slow = place("names")

    def names(keys: pa.RecordBatch) -> pa.Table:
        slow(keys)
        return pa.table({"n": keys["n"], "name": keys["n"]})

    rows = source(env, "numbers", place("numbers")).rebalance()
    named = rows.lookup(names, on="n", schema=pa.schema({"name": pa.int64()}), concurrency=1).name("names")
    named.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


class _Counting(hg.KeyedProcessFunction):
    """Counts the rows of each key."""

    rows = hg.ValueState(pa.int64())

    def __init__(self, slow: Slow) -> None:
        self._slow = slow

    def process(self, batch: pa.RecordBatch, ctx: hg.ProcessContext) -> Iterator[dict[str, int]]:
        self._slow(batch)
        count = (self.rows.value() or 0) + batch.num_rows
        self.rows.update(count)
        yield {"k": ctx.key[0], "n": count}


def keyed(env: hg.StreamEnvironment, place: Place) -> None:
    """A function with keyed state."""
    rows = source(env, "numbers", place("numbers")).rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    schema = pa.schema({"k": pa.int64(), "n": pa.int64()})
    counts = rows.key_by("k").process(_Counting(place("counts")), schema=schema).name("counts")
    counts.sink_to(hg.sinks.null()).name("out")


class _RowFunction:
    def __init__(self, slow: Slow) -> None:
        self._slow = slow

    def __call__(self, row: dict[str, int]) -> dict[str, int]:
        self._slow.on_rows(1)
        return row


def by_row(env: hg.StreamEnvironment, place: Place) -> None:
    """A function that gets one row at a time."""
    rows = source(env, "numbers", place("numbers")).rebalance()
    rows = rows.map(_RowFunction(place("first")), schema=SCHEMA).name("first")
    rows.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def deep(env: hg.StreamEnvironment, place: Place) -> None:
    """Five functions, with an exchange before each."""
    rows = source(env, "numbers", place("numbers"))
    for number in range(1, 6):
        rows = rows.rebalance().map_batches(place(f"step{number}"), schema=SCHEMA).name(f"step{number}")
    rows.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def to_all(env: hg.StreamEnvironment, place: Place) -> None:
    """A function whose subtasks all get every row."""
    rows = source(env, "numbers", place("numbers")).broadcast().map_batches(place("first"), schema=SCHEMA).name("first")
    rows.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def long_chain(env: hg.StreamEnvironment, place: Place) -> None:
    """Three functions and a sink in one task."""
    rows = source(env, "numbers", place("numbers")).rebalance()
    for name in ("one", "two", "three"):
        rows = rows.map_batches(place(name), schema=SCHEMA).name(name)
    rows.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def three_sources(env: hg.StreamEnvironment, place: Place) -> None:
    """A union of three sources, a function and sums."""
    one, two, three = (source(env, name, place(name)) for name in ("one", "two", "three"))
    rows = one.union(two, three).rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows.key_by("n").aggregate(k=hg.sum("k")).name("sums").sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def to_one(env: hg.StreamEnvironment, place: Place) -> None:
    """An operator with one subtask and its sink, which get the rows of all."""
    rows = source(env, "numbers", place("numbers")).rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows = rows.rebalance().map_batches(place("last"), schema=SCHEMA).name("last").set_parallelism(1)
    rows.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def two_windows(env: hg.StreamEnvironment, place: Place) -> None:
    """One source and two windows over it, each with a sink of its own."""
    rows = source(env, "numbers", place("numbers"), watermark=WATERMARK)
    counts = rows.key_by("k").window(hg.tumble("1 s")).aggregate(n=hg.count()).name("counts")
    most = rows.key_by("n").window(hg.tumble("1 s")).aggregate(k=hg.max("k")).name("most")
    counts.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")
    most.sink_to(hg.sinks.for_each_batch(place("other"))).name("other")
