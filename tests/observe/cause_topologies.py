"""Pipelines for causes that no slow function makes: what surrounds a job, its checkpoints, its driver, what comes.

Each topology is a function `(env, place)`, as in `topologies.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import headgate as hg
from headgate.connectors.collect_sink import CollectSink
from tests.observe.faults import Slow, has_ended
from tests.observe.flow_source import FlowSource
from tests.observe.topologies import RATE, SCHEMA, Place, source

#: Processors that the functions of `loaded` and `loaded_chain` use together.
LOAD = 1.0
#: Bytes of a row of `to_driver` and `wide`, and of `large`.
WIDE, LARGE = 16_000, 1 << 20
#: Bytes of a row of `two_rooms`: an output's buffers are full soon.
SMALL = 200
_CONTENT = pa.schema({"n": pa.int64(), "content": pa.binary()})


def _flow(env: hg.StreamEnvironment, name: str, source: FlowSource, **options: Any) -> hg.DataStream:
    return env.from_source(source, **options).name(name)


@dataclass(frozen=True)
class _Filled:
    """A function that adds bytes to each row."""

    nbytes: int

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        content = pa.array([bytes(self.nbytes)] * batch.num_rows, pa.binary())
        return pa.record_batch([batch["n"], content], schema=_CONTENT)


@dataclass(frozen=True)
class _Loaded:
    """A function that computes for each row, all the time."""

    slow: Slow
    seconds: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        until = time.thread_time() + self.seconds * batch.num_rows
        while (now := time.thread_time()) < until and not has_ended(self.slow.folder):
            while time.thread_time() < min(until, now + 0.05):
                pass
        return self.slow(batch)


def loaded(env: hg.StreamEnvironment, place: Place) -> None:
    """A function that needs a processor in all, and gets it until the onset."""
    rows = source(env, "numbers", place("numbers")).rebalance()
    rows = rows.map_batches(_Loaded(place("first"), LOAD / RATE), schema=SCHEMA).name("first")
    rows.sink_to(hg.sinks.for_each_batch(place("out"))).name("out")


def loaded_chain(env: hg.StreamEnvironment, place: Place) -> None:
    """The same function in the chain of its source."""
    rows = source(env, "numbers", place("numbers"))
    rows = rows.map_batches(_Loaded(place("first"), LOAD / RATE), schema=SCHEMA).name("first")
    rows.rebalance().map_batches(place("second"), schema=SCHEMA).name("second").sink_to(hg.sinks.null()).name("out")


def throttled(env: hg.StreamEnvironment, place: Place) -> None:
    """A source whose throttle allows twice its rows."""
    throttle = hg.throttle.FixedRate(2 * RATE / env.parallelism, burst="100 ms")
    rows = _flow(env, "numbers", FlowSource(place("numbers"), env.parallelism), throttle=throttle).rebalance()
    rows.map_batches(place("first"), schema=SCHEMA).name("first").sink_to(hg.sinks.null()).name("out")


def one_split(env: hg.StreamEnvironment, place: Place) -> None:
    """A source with one split for all its subtasks."""
    rows = _flow(env, "numbers", FlowSource(place("numbers"), 1)).rebalance()
    rows.map_batches(place("first"), schema=SCHEMA).name("first").sink_to(hg.sinks.null()).name("out")


def two_rooms(env: hg.StreamEnvironment, place: Place) -> None:
    """A function with one exchange before it, whose rows go from one TaskManager to the other, or stay in it."""
    _filled(env, place, SMALL)


def wide(env: hg.StreamEnvironment, place: Place) -> None:
    """The same with rows of 16 kB."""
    _filled(env, place, WIDE)


def _filled(env: hg.StreamEnvironment, place: Place, nbytes: int) -> None:
    rows = source(env, "numbers", place("numbers")).map_batches(_Filled(nbytes), schema=_CONTENT).name("filled")
    first = rows.rebalance().map_batches(place("first"), schema=_CONTENT).name("first")
    first.sink_to(hg.sinks.null()).name("out")


class _DriverSink(CollectSink):
    """A sink whose rows pass through the driver, which keeps none."""

    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self._slow = slow

    def deliver(self, batch: pa.RecordBatch, checkpoint: int = 0) -> None:
        self._slow(batch)


def to_driver(env: hg.StreamEnvironment, place: Place) -> None:
    """Rows of 16 kB that pass through the driver: one driver for all subtasks."""
    slow = place("out")
    slow = replace(slow, seconds=slow.seconds / env.parallelism)
    rows = (
        source(env, "numbers", place("numbers")).rebalance().map_batches(_Filled(WIDE), schema=_CONTENT).name("filled")
    )
    rows.sink_to(_DriverSink(slow)).name("out")


@dataclass(frozen=True)
class _Writes:
    """Writes the rows of a checkpoint."""

    slow: Slow

    def __call__(self, table: pa.Table, _info: hg.BatchInfo) -> int:
        self.slow.on_rows(table.num_rows)
        return int(table.num_rows)


def _commit(_written: list[int], _checkpoint: int) -> None: ...


def committed(env: hg.StreamEnvironment, place: Place) -> None:
    """A sink that writes when a checkpoint comes, before its task goes on."""
    rows = source(env, "numbers", place("numbers")).rebalance().map_batches(place("first"), schema=SCHEMA).name("first")
    rows.rebalance().sink_to(hg.sinks.two_phase(_Writes(place("out")), _commit)).name("out")


def scattered(env: hg.StreamEnvironment, place: Place) -> None:
    """One subtask whose rows go to sixteen, without a wait for fuller buffers."""
    rows = _flow(env, "numbers", FlowSource(place("numbers"), 1, batch_rows=64)).set_parallelism(1)
    dealt = rows.partition_by(lambda batch, subtasks: batch["n"].to_numpy() % subtasks)
    first = dealt.map_batches(place("first"), schema=SCHEMA).name("first").set_parallelism(16)
    first.sink_to(hg.sinks.null()).name("out")


def large(env: hg.StreamEnvironment, place: Place) -> None:
    """Ten rows/s of 1 MiB."""
    rows = _flow(env, "numbers", FlowSource(place("opened"), 1, rate=10, batch_rows=4)).set_parallelism(1)
    opened = rows.map_batches(_Filled(LARGE), schema=_CONTENT).name("opened").set_parallelism(1)
    opened.rebalance().map_batches(place("first"), schema=_CONTENT).name("first").sink_to(hg.sinks.null()).name("out")


@dataclass(frozen=True)
class _Steady:
    """A function that waits for each row, always as long."""

    folder: Path
    seconds: float

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        until = time.perf_counter() + self.seconds * batch.num_rows
        while (left := until - time.perf_counter()) > 0 and not has_ended(self.folder):
            time.sleep(min(left, 0.05))
        return batch


def seldom(env: hg.StreamEnvironment, place: Place) -> None:
    """A source that gives half of the rows that its consumer can take."""
    rows = _flow(env, "numbers", FlowSource(place("first"), env.parallelism, rate=RATE / 4)).rebalance()
    rows = rows.map_batches(_Steady(place("first").folder, 2 * env.parallelism / RATE), schema=SCHEMA).name("first")
    rows.sink_to(hg.sinks.null()).name("out")


def two_in_time(env: hg.StreamEnvironment, place: Place) -> None:
    """A window over two sources."""
    time_of = hg.Watermark("t", out_of_orderness="500 ms")
    numbers = source(env, "numbers", place("numbers"), watermark=time_of)
    others = _flow(env, "others", FlowSource(place("others"), env.parallelism), watermark=time_of)
    counts = numbers.union(others).key_by("k").window(hg.tumble("1 s")).aggregate(n=hg.count()).name("counts")
    counts.sink_to(hg.sinks.null()).name("out")
