"""A job with an operator stops with a savepoint, and goes on with more subtasks: the rows are those of one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headgate as hg
from tests.runtime.jobs import eventually

ROWS = 8000
#: The rows after which the job stops.
STOPS_AFTER = 2000
Stream = hg.DataStream


def numbered(start: int, n: int) -> pa.RecordBatch:
    """Rows one millisecond apart, with a pause of 20 ms after every 50."""
    numbers = np.arange(start, start + n)
    times = numbers * 1000 + numbers // 50 * 20_000
    columns = [pa.array(numbers % 7), pa.array(numbers), pa.array(times, pa.timestamp("us"))]
    return pa.RecordBatch.from_arrays(columns, names=["key", "number", "t"])


def _windows(stream: Stream, window: Any, **aggregates: Any) -> Stream:
    return stream.key_by("key").window(window).aggregate(**aggregates)


def _without_bounds(stream: Stream) -> Stream:
    """Leave out the bounds of windows by the clock."""
    return stream.select("key", "rows", "total")


#: By the clock, one session has all rows, and ends with the input. So do windows of years.
TOTALS: Any = {"rows": hg.count(), "total": hg.sum("number")}
TOTAL = pa.schema({"key": pa.int64(), "total": pa.int64()})


class Total(hg.KeyedBatchFunction):
    """The number of rows of each key up to each row: it does not depend on their order."""

    rows = hg.ColumnState(pa.int64())

    def process(self, batch: pa.RecordBatch, keys: hg.BatchKeys, ctx: Any) -> pa.RecordBatch:
        counts = keys.running_sum(np.ones(batch.num_rows, np.int64), before=self.rows.values())
        self.rows.update(counts[keys.last])
        return pa.record_batch([batch["key"], pa.array(counts)], schema=TOTAL)


class Newest(hg.KeyedProcessFunction):
    """The last number of each key when the input ends, and -1 for each row that is older than the one before it."""

    last = hg.ValueState(pa.int64())

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        ctx.register_event_time_timer(1 << 62)
        if row["number"] < self.last.value(0):
            return {"key": row["key"], "total": -1}
        self.last.update(row["number"])
        return None

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        return {"key": ctx.key[0], "total": self.last.value()}


class Most(hg.AggregateFunction):
    """The greatest of integers that are not negative."""

    state = pa.schema({"most": pa.int64()})
    type = pa.int64()

    def create(self, count: int) -> Any:
        return {"most": np.full(count, -1)}

    def accumulate(self, values: pa.RecordBatch, groups: Any, count: int) -> Any:
        most = np.full(count, -1)
        np.maximum.at(most, groups, values.column(0).to_numpy())
        return {"most": most}

    def merge(self, states: Any, others: Any) -> Any:
        return {"most": np.maximum(states["most"], others["most"])}

    def result(self, states: Any) -> Any:
        return states["most"]


OPERATORS: dict[str, Callable[[Stream, Stream], Stream]] = {
    "interval join": lambda one, two: one.join(two, on="key", within=("-10 ms", "10 ms"), suffix="_too"),
    "window join": lambda one, two: one.join(two, on="number", window=hg.tumble("100 ms"), suffix="_too"),
    "left interval join": lambda one, two: one.join(
        two.filter("number % 3 = 0"), on="number", within=("-10 ms", "10 ms"), how="left", suffix="_too"
    ),
    "right interval join": lambda one, two: one.filter("number % 3 = 0").join(
        two, on="number", within=("-10 ms", "10 ms"), how="right", suffix="_too"
    ),
    "full window join": lambda one, two: one.filter("number % 2 = 0").join(
        two.filter("number % 3 = 0"), on="number", window=hg.tumble("100 ms"), how="full", suffix="_too"
    ),
    "as-of join": lambda one, two: one.join_as_of(two, on="key", suffix="_too"),
    "session": lambda one, two: _windows(one.union(two), hg.session("5 ms"), rows=hg.count()),
    "quantile": lambda one, two: _windows(one.union(two), hg.tumble("100 ms"), middle=hg.quantile("number", 0.5)),
    "top": lambda one, two: one.union(two).key_by("key").window(hg.tumble("100 ms")).top(2, by="number"),
    "deduplicate": lambda one, two: one.union(two).deduplicate("number").select("number"),
    "deduplicate, the last": lambda one, two: (
        one.union(two).deduplicate("key", keep="last").key_by("key").process(Newest(), schema=TOTAL)
    ),
    "deduplicate, the last at the end": lambda one, two: (
        one.union(two).with_columns(block="number div 100").deduplicate("block", keep="last", final=True)
    ),
    "join with a ttl": lambda one, two: one.join(two, on="number", ttl="1 h", suffix="_too"),
    "session by the clock": lambda one, two: _without_bounds(
        _windows(one.union(two), hg.session("1 h", time="processing"), **TOTALS)
    ),
    "tumble by the clock": lambda one, two: _without_bounds(
        _windows(one.union(two), hg.tumble("3650 d", time="processing"), **TOTALS)
    ),
    "hop by the clock": lambda one, two: _without_bounds(
        _windows(one.union(two), hg.hop("3650 d", "365 d", time="processing"), **TOTALS)
    ),
    "running top": lambda one, two: one.union(two).key_by("key").top(3, by="number", final=True),
    "columns of state": lambda one, two: one.union(two).key_by("key").process(Total(), schema=TOTAL),
    "own aggregate": lambda one, two: _windows(one.union(two), hg.tumble("100 ms"), most=Most()("number")),
}


def result(name: str, env: hg.StreamEnvironment, rate: int | None) -> Stream:
    """Return the operator's rows. Its sources have one subtask each, whatever the parallelism is."""
    one, two = (
        env.from_source(hg.sources.generate(numbered, rows=ROWS, rate=rate), watermark=hg.Watermark("t"))
        .set_parallelism(1)
        .uid(uid)
        for uid in ("one", "two")
    )
    return OPERATORS[name](one, two).uid("operator")


def environment(parallelism: int, **options: Any) -> hg.StreamEnvironment:
    threads = hg.LocalDeployment(processes=False)
    return hg.StreamEnvironment(parallelism=parallelism, config=hg.Config(**options), deployment=threads)


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


@pytest.mark.turns(3)
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_goes_on_from_a_savepoint_with_more_subtasks(name: str, tmp_path: Path) -> None:
    def started(parallelism: int, resume: str | None = None) -> hg.JobHandle:
        env = environment(parallelism, checkpoint_dir=tmp_path / "checkpoints", checkpoint_interval="1 h")
        result(name, env, 10_000).sink_to(hg.sinks.parquet(tmp_path / "out")).uid("out")
        return env.execute_async("operators", resume)

    first = started(2)
    eventually(lambda: first.status() == "RUNNING" and first.metrics()["rows_in"] >= STOPS_AFTER, 60)
    savepoint = first.stop(timeout=60, savepoint=tmp_path / "kept")
    assert STOPS_AFTER <= first.wait().rows_in < 2 * ROWS
    assert started(3, savepoint).wait(60).rows_in > 0
    found = ds.dataset(tmp_path / "out").to_table()
    expected = result(name, environment(2), None).collect()
    assert in_order(found).equals(in_order(expected.cast(found.schema)))
