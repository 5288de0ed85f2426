"""Event time is a column of the rows. This file has the rules for this column in the operators of a plan.

- `filter`, `with_columns` and `lookup` keep the column.
- A `select` without the column keeps it as a hidden column, so that a window may follow. Functions, sinks and results
  never see the hidden column.
- A function keeps event time if its rows still have the column.
- After a window, the event time of a row is the last microsecond of the window.
"""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from headgate.api.builder import GraphBuilder, Upstream
from headgate.errors import PlanError
from headgate.operators.sql.expressions import HIDDEN_COLUMN
from headgate.plan.graph import EventTime, Node

AFTER_WINDOW = EventTime("window_end", -1)

_KEEP_IN_UNION = "whose streams must all have the same event-time column"


def visible(schema: pa.Schema) -> pa.Schema:
    """Return the columns that the user can see: all columns except the hidden column."""
    index = schema.get_field_index(HIDDEN_COLUMN)
    return schema if index < 0 else schema.remove(index)


def after_function(event_time: EventTime | None, output: pa.Schema) -> EventTime | None:
    """Return the event time of a function's output, or None if the event-time column is no timestamp column of the
    output."""
    if event_time is None or event_time.column not in output.names:
        return None
    return event_time if pa.types.is_timestamp(output.field(event_time.column).type) else None


def common(streams: list[tuple[EventTime | None, pa.Schema]]) -> EventTime | None:
    """Return the event time of a union. Return None if the streams do not all have the same column of the same type."""
    event_time = streams[0][0]
    if event_time is None or any(other != event_time for other, _ in streams):
        return None
    types = {schema.field(event_time.column).type for _, schema in streams}
    return event_time if len(types) == 1 else None


def check_still_time(call: str, event_time: EventTime | None, output: pa.Schema) -> None:
    """Check that the event-time column is still a timestamp. An expression may change its values, but not its type."""
    if event_time is None or event_time.column not in output.names:
        return
    time_type = output.field(event_time.column).type
    if not pa.types.is_timestamp(time_type):
        raise PlanError(
            f"{call}: column {event_time.column!r} holds event time and would become {time_type}; "
            "give the new column another name"
        )


def required(call: str, event_time: EventTime | None, graph: GraphBuilder, inputs: tuple[Upstream, ...]) -> EventTime:
    """Return the event time. Raises PlanError if there is no event time, and names the operator at which it was
    lost."""
    if event_time is None:
        raise PlanError(f"{call}: there is no event time; {_why_missing(graph, inputs)}")
    return event_time


def on_null_time(graph: GraphBuilder, inputs: tuple[Upstream, ...]) -> Literal["error", "late"]:
    """Return "late" if the watermark of a source above these inputs has `on_null_time="late"`, otherwise "error"."""
    watermarks = [graph[node_id].watermark for node_id in graph.with_all_above(part.source for part in inputs)]
    return "late" if any(mark is not None and mark.on_null_time == "late" for mark in watermarks) else "error"


def out_of_orderness(graph: GraphBuilder, inputs: tuple[Upstream, ...]) -> str:
    """Return the `out_of_orderness` of the sources above these inputs, as text for reports."""
    watermarks = [graph[node_id].watermark for node_id in graph.with_all_above(part.source for part in inputs)]
    bounds = sorted({mark.out_of_orderness for mark in watermarks if mark is not None})
    return "out_of_orderness=" + " or ".join(f"{bound / 1e6:g} s" for bound in bounds)


def _why_missing(graph: GraphBuilder, inputs: tuple[Upstream, ...]) -> str:
    if any(graph[part.source].event_time is not None for part in inputs):
        return f"it was lost at the union, {_KEEP_IN_UNION}"
    node = graph[inputs[0].source]
    while True:
        if "counts" in node.attributes:
            return f"{node.attributes['counts']} does not go by time, so its rows have none"
        if node.attributes["kind"] == "window" and node.event_time is None:
            return (
                f"the windows of {node.name!r} go by the clock, so its rows have none; use time='processing' here too"
            )
        above = [graph[part.source] for part in graph.inputs(node.id)]
        if not above:
            return f"source {node.name!r} has no watermark: add watermark=hg.Watermark(column) to from_source"
        before = next((other.event_time for other in above if other.event_time is not None), None)
        if before is not None:
            return f"it was lost at {node.name!r}, {_remedy(node, before)}"
        node = above[0]


def _remedy(node: Node, before: EventTime) -> str:
    if node.attributes["kind"] == "union":
        return _KEEP_IN_UNION
    if node.attributes["kind"] == "aggregate":
        return "because a running aggregate's rows have no event time; use windows there too"
    if node.attributes["kind"] in ("top", "deduplicate"):
        return "whose rows replace one another, or come at the end of the input, and so have no event time"
    column = "" if before.column == HIDDEN_COLUMN else f" {before.column!r}"
    return f"whose result must keep the event-time column{column} as a timestamp"
