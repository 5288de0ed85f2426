"""The three tests that the kit is for: a function by itself, a whole pipeline, and a pipeline that is resumed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate import testing
from headgate.testing import AdvanceClock, AdvanceWatermark, Restart, at

VISITS = pa.schema({"user": pa.string(), "at": pa.timestamp("us", "UTC")})
SEEN = pa.schema({"user": pa.string(), "visits": pa.int64(), "why": pa.string()})


class Away(hg.KeyedProcessFunction):
    """Emits the number of a user's visits: 10 min of event time after the last one, or after an hour by the clock."""

    visits = hg.ValueState(pa.int64())
    due = hg.ValueState(pa.int64())

    def process_element(self, row: dict[str, Any], ctx: hg.ProcessContext) -> Any:
        if self.due.value() is not None:
            ctx.delete_event_time_timer(self.due.value())
        else:
            ctx.register_processing_time_timer(ctx.processing_time + 3_600_000_000)
        self.visits.update(self.visits.value(0) + 1)
        self.due.update(ctx.timestamp + 600_000_000)
        ctx.register_event_time_timer(self.due.value())
        if row["at"] < at("0 s"):
            yield hg.SideOutput("old", {"user": row["user"]})

    def on_timer(self, time: int, ctx: hg.ProcessContext) -> Any:
        if self.visits.value() is not None:
            yield {"user": ctx.key[0], "visits": self.visits.value(), "why": ctx.time_domain}
        self.visits.clear()
        self.due.clear()


def away(visits: hg.DataStream) -> hg.DataStream:
    return visits.key_by("user").process(Away(), schema=SEEN, side_outputs={"old": pa.schema({"user": pa.string()})})


def test_a_function_with_state_and_timers() -> None:
    users = testing.OperatorHarness(away, schema=VISITS, event_time="at")
    assert users.push({"user": "ada", "at": at("1 min")}) == []
    assert users.push({"user": "ada", "at": at("5 min")}) == []
    assert users.advance_watermark(at("14 min")) == []
    assert users.advance_watermark(at("15 min")) == [{"user": "ada", "visits": 2, "why": "event"}]
    users.push({"user": "bob", "at": at("-1 s")})
    assert users.take("old") == [{"user": "bob"}]
    assert users.advance_clock(at("1 h")) == [{"user": "bob", "visits": 1, "why": "processing"}]


READINGS = pa.schema({"gauge": pa.string(), "level": pa.int64(), "at": pa.timestamp("us", "UTC")})


def levels(env: hg.StreamEnvironment) -> None:
    readings = env.from_source(hg.sources.csv("in/*.csv", schema=READINGS), watermark=hg.Watermark("at"))
    sums = readings.key_by("gauge").window(hg.tumble("1 min")).late_output("late").aggregate(sum=hg.sum("level"))
    sums.select("gauge", "sum").sink_to(hg.sinks.parquet("sums/")).name("sums")
    sums.side_output("late").sink_to(hg.sinks.parquet("late/")).name("late")


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_pipeline_with_late_rows(parallelism: int) -> None:
    late = {"gauge": "weir", "level": 100, "at": at("20 s")}
    result = testing.run(
        levels,
        [
            {"gauge": "weir", "level": 1, "at": at("10 s")},
            {"gauge": "weir", "level": 2, "at": at("5 s")},
            AdvanceWatermark(at("1 min")),
            late,
            {"gauge": "weir", "level": 3, "at": at("70 s")},
        ],
        parallelism=parallelism,
    )
    assert result["sums"] == [{"gauge": "weir", "sum": 3}, {"gauge": "weir", "sum": 3}]
    assert result["late"] == [late]


def seen(env: hg.StreamEnvironment) -> hg.DataStream:
    return away(env.from_source(hg.sources.csv("in/*.csv", schema=VISITS), watermark=hg.Watermark("at")))


GIVEN = [
    {"user": "ada", "at": at("1 min")},
    {"user": "bob", "at": at("2 min")},
    AdvanceClock(at("30 min")),
    {"user": "ada", "at": at("5 min")},
    AdvanceWatermark(at("12 min")),
    {"user": "cyd", "at": at("13 min")},
    AdvanceClock(at("1 h")),
    {"user": "bob", "at": at("14 min")},
]


@pytest.mark.parametrize("row", range(6))
def test_a_pipeline_resumed_at_any_row_with_another_parallelism(row: int) -> None:
    undisturbed = testing.run(seen, GIVEN)
    resumed = testing.run(seen, GIVEN, restarts=[Restart(row, parallelism=3)])
    testing.assert_same_rows(resumed.rows, undisturbed.rows)
    assert len(undisturbed.rows) == 4
