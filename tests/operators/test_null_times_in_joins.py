"""Rows without an event time in joins: they are late, or an error that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest

import headgate as hg
from tests.operators.two_streams import Subtasks

LEFT = pa.schema({"at": pa.timestamp("us"), "k": pa.int64(), "a": pa.int64()})
RIGHT = pa.schema({"since": pa.timestamp("us"), "k": pa.int64(), "b": pa.int64()})
SECOND = 1_000_000
Join = Callable[[hg.DataStream, hg.DataStream], hg.DataStream]
JOINS: dict[str, Join] = {
    "interval": lambda left, right: left.join(right, on="k", within=("-1 min", "1 min"), how="left"),
    "window": lambda left, right: left.join(right, on="k", window=hg.tumble("1 min"), how="left"),
    "as of": lambda left, right: left.join_as_of(right, on="k"),
}


def planned(join: Join, on_null_time: Literal["error", "late"]) -> Subtasks:
    env = hg.StreamEnvironment()
    left, right = (
        env.from_source(hg.sources.iterable([], schema=schema), watermark=hg.Watermark(time, on_null_time=on_null_time))
        for schema, time in ((LEFT, "at"), (RIGHT, "since"))
    )
    join(left, right).sink_to(hg.sinks.null())
    return Subtasks(env._jobs.graph.graph(env._jobs.pending))


def rows(schema: pa.Schema, *times: int | None) -> pa.RecordBatch:
    """Rows of one key; the last column numbers them."""
    columns: list[Any] = [pa.array(times, pa.timestamp("us")), [1] * len(times), list(range(len(times)))]
    return pa.record_batch(columns, schema=schema)


@pytest.mark.parametrize("join", JOINS)
def test_rows_without_a_time_are_late(join: str) -> None:
    """Neither they nor their partners are in the result, though the join keeps all left rows."""
    subtasks = planned(JOINS[join], "late")
    subtasks.push(0, rows(LEFT, None, 2 * SECOND))
    subtasks.push(1, rows(RIGHT, 1 * SECOND, None))
    assert [(row["a"], row["b"]) for row in subtasks.finish()] == [(1, 0)]
    assert subtasks.late_rows == 2


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("join", JOINS)
def test_a_row_without_a_time_is_an_error(join: str, side: int) -> None:
    subtasks = planned(JOINS[join], "error")
    schema, time = ((LEFT, "at"), (RIGHT, "since"))[side]
    with pytest.raises(hg.DataError, match=f"event-time column '{time}' is null in 1 of 2 rows; filter them out, or"):
        subtasks.push(side, rows(schema, SECOND, None))
