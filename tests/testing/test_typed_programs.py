"""Programs as users write them who check their types: mypy, in its strict mode, finds nothing here (`make check`).

It would find an `ignore` that is not needed, so each of them shows what users are warned of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headgate as hg
from headgate import testing
from headgate.connectors.connector import Source
from headgate.testing import at

VISITS = pa.schema({"user": pa.string(), "at": pa.timestamp("us", "UTC")})
LEFT = pa.schema({"user": pa.string(), "after_s": pa.int64()})


class Leaves(hg.KeyedProcessFunction):
    """A user who does not come back within ten minutes has left."""

    first = hg.ValueState(pa.int64())

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> None:
        if self.first.value() is None:
            self.first.update(ctx.timestamp)
        ctx.register_event_time_timer(ctx.timestamp + 600_000_000)

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Iterator[dict[str, Any]]:
        yield {"user": ctx.key[0], "after_s": (time - self.first.value()) // 1_000_000}


class AsksInATimer(Leaves):
    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Iterator[dict[str, Any]]:
        yield {"user": ctx.key[0], "after_s": ctx.timestamp}


def left(function: hg.KeyedProcessFunction, event_time: str | None) -> testing.OperatorHarness:
    def step(visits: hg.DataStream) -> hg.DataStream:
        return visits.key_by("user").process(function, schema=LEFT)

    return testing.OperatorHarness(step, schema=VISITS, event_time=event_time)


def test_the_timestamp_of_a_row_is_a_number() -> None:
    users = left(Leaves(), "at")
    users.push({"user": "ada", "at": at("1 min")})
    assert users.advance_watermark(at("11 min")) == [{"user": "ada", "after_s": 600}]


def test_without_event_time_the_timestamp_is_an_error_that_says_what_to_add() -> None:
    with pytest.raises(hg.UserFunctionError, match=r"ctx.timestamp needs event time, .* add watermark=hg.Watermark"):
        left(Leaves(), None).push({"user": "ada", "at": at("1 min")})


def test_in_a_timer_there_is_no_row() -> None:
    users = left(AsksInATimer(), "at")
    users.push({"user": "ada", "at": at("1 min")})
    with pytest.raises(hg.UserFunctionError, match=r"ctx.timestamp: there is no row now; on_timer gets the time"):
        users.advance_watermark(at("11 min"))


def read(source: Source) -> list[int]:
    found: list[int] = (
        hg.StreamEnvironment(deployment=hg.LocalDeployment(processes=False))
        .from_source(source)
        .collect()["n"]
        .to_pylist()
    )
    return found


def test_iterable_takes_frames_rows_and_batches() -> None:
    batch, rows = pa.record_batch({"n": [1]}), [{"n": 1}]
    assert read(hg.sources.iterable(pd.DataFrame({"n": [1]}))) == [1]
    assert read(hg.sources.iterable(pl.DataFrame({"n": [1]}))) == [1]
    assert read(hg.sources.iterable(pa.table({"n": [1]}))) == [1]
    assert read(hg.sources.iterable(batch)) == [1]
    assert read(hg.sources.iterable(rows)) == [1]
    assert read(hg.sources.iterable([pd.DataFrame({"n": [1]}), pl.DataFrame({"n": [1]}), rows, batch])) == [1] * 4


def test_iterable_takes_a_function_of_frames() -> None:
    def frames(subtask: int, _subtasks: int) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"n": [subtask]})

    assert read(hg.sources.iterable(frames)) == [0]


def test_what_iterable_refuses_a_type_checker_refuses_too() -> None:
    with pytest.raises(hg.ConfigError, match="a LazyFrame is not computed yet"):
        hg.sources.iterable(pl.LazyFrame({"n": [1]}))  # type: ignore[arg-type]
    with pytest.raises(hg.ConfigError, match="a dict is not a list"):
        hg.sources.iterable({"n": [1]})  # type: ignore[arg-type]
    with pytest.raises(hg.SourceError, match="item 0 is of type int"):
        hg.sources.iterable([1])  # type: ignore[arg-type]
