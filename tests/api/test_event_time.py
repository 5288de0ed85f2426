"""Event time is a column that operators keep; where it is lost, the error of a later window says so."""

from __future__ import annotations

import pyarrow as pa
import pytest

import headgate as hg
from headgate.plan.graph import EventTime


def windowed(stream):
    return stream.key_by().window(hg.tumble("1 h")).aggregate(rows=hg.count())


def time_of(plans, stream):
    return plans.graph(windowed(stream)).nodes[-2].operator.keywords["time_column"]


def test_a_watermark_is_checked_against_the_source(plans):
    with pytest.raises(hg.PlanError, match="there is no column 'time'"):
        plans.read(hg.Watermark("time"))
    with pytest.raises(hg.PlanError, match="column 'delay' is int64"):
        plans.read(hg.Watermark("delay"))


@pytest.mark.parametrize(
    "options",
    [
        {"out_of_orderness": "-1 s"},
        {"out_of_orderness": "soon"},
        {"idle_timeout": 0},
        {"on_null_time": "drop"},
    ],
)
def test_a_watermark_refuses_impossible_values(options):
    with pytest.raises(hg.PlanError, match=next(iter(options))):
        hg.Watermark("ts", **options)


def test_watermarks_are_in_microseconds(plans):
    watermark = hg.Watermark("ts", out_of_orderness="1 h", idle_timeout="2 s", on_null_time="late")
    spec = watermark.spec(plans.stream().schema)
    assert (spec.out_of_orderness, spec.idle_timeout, spec.on_null_time) == (3_600_000_000, 2.0, "late")


def test_filters_and_new_columns_keep_event_time(plans):
    assert time_of(plans, plans.stream().filter("delay > 1").with_columns(x="delay + 1")) == "ts"


def test_a_select_without_the_column_keeps_it_as_a_hidden_column(plans):
    stream = plans.stream().select("carrier").select("carrier").filter("carrier = 'AA'")
    assert stream.schema.names == ["carrier"]
    assert time_of(plans, stream) == "__event_time__"


def test_sinks_never_see_the_hidden_column(plans):
    graph = plans.graph(plans.stream().select("carrier"))
    *_, selected, projected, sink = graph.nodes
    assert selected.schema.names == ["carrier", "__event_time__"]
    assert projected.schema.names == sink.schema.names == ["carrier"]


def test_the_event_time_column_stays_a_timestamp(plans):
    stream = plans.stream()
    assert stream.with_columns(ts="ts")._rows.event_time == EventTime("ts")
    for wrong in [lambda: stream.with_columns(ts="delay"), lambda: stream.select("carrier", ts="delay")]:
        with pytest.raises(hg.PlanError, match="column 'ts' holds event time and would become int64"):
            wrong()


def test_a_function_that_returns_the_column_keeps_event_time(plans):
    schema = pa.schema({"ts": pa.timestamp("us"), "x": pa.int64()})
    assert time_of(plans, plans.stream().map_batches(lambda batch: batch, schema=schema)) == "ts"


@pytest.mark.parametrize("schema", [pa.schema({"x": pa.int64()}), pa.schema({"ts": pa.int64()})])
def test_a_function_without_the_column_loses_event_time(plans, schema):
    stream = plans.stream().map(dict, schema=schema).name("mine").filter("1 = 1")
    with pytest.raises(hg.PlanError, match="it was lost at 'mine', whose result must keep the event-time column 'ts'"):
        windowed(stream)


def test_a_window_needs_a_watermark(plans):
    with pytest.raises(hg.PlanError, match=r"source 'paper' has no watermark: add watermark=hg\.Watermark"):
        windowed(plans.stream(timed=False).filter("delay > 1"))


def test_a_union_keeps_event_time_if_the_columns_agree(plans):
    one, other = plans.stream(), plans.stream().filter("delay > 1")
    assert time_of(plans, one.union(other)) == "ts"
    assert time_of(plans, one.select("delay").union(other.select("delay"))) == "__event_time__"
    mixed = one.select("delay").union(plans.stream(timed=False).select("delay"))
    assert mixed.schema.names == mixed._rows.schema.names == ["delay"]
    with pytest.raises(hg.PlanError, match="whose streams must all have the same event-time column"):
        windowed(mixed)


def test_a_union_puts_the_hidden_column_last_in_all_streams(plans):
    titles = pa.table({"carrier": ["AA"], "title": ["American"]})
    one = plans.stream().select("carrier").lookup(titles, on="carrier")
    other = plans.stream().select("carrier", title="origin")
    assert one._rows.schema.names != other._rows.schema.names
    both = one.union(other)
    assert both.schema.names == ["carrier", "title"]
    assert both._rows.schema.names == ["carrier", "title", "__event_time__"]
    assert time_of(plans, both) == "__event_time__"


def test_null_times_are_late_if_one_source_says_so(plans):
    late = plans.read(hg.Watermark("ts", on_null_time="late"))
    for stream, meaning in [(plans.stream(), "error"), (plans.stream().union(late.filter("delay > 1")), "late")]:
        assert plans.graph(windowed(stream)).nodes[-2].operator.keywords["on_null_time"] == meaning


def test_first_and_last_need_event_time(plans):
    last = plans.stream().select("carrier", "delay").key_by("carrier").aggregate(delay=hg.last("delay"))
    assert plans.node(last, "aggregate").operator.keywords["time_column"] == "__event_time__"
    with pytest.raises(hg.PlanError, match="first and last: there is no event time"):
        plans.stream(timed=False).key_by("carrier").aggregate(delay=hg.last("delay"))
    with pytest.raises(hg.PlanError, match="a running aggregate's rows have no event time"):
        windowed(last)


def test_a_windows_row_belongs_to_its_last_microsecond(plans):
    windows = plans.stream().key_by("carrier").window(hg.tumble("1 h")).aggregate(rows=hg.count())
    assert windows._rows.event_time == EventTime("window_end", -1)
    assert windows.select("rows")._rows.event_time == EventTime("__event_time__", -1)
    again = plans.graph(windowed(windows)).nodes[-2].operator.keywords
    assert (again["time_column"], again["time_offset"]) == ("window_end", -1)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_session_over_windows_needs_microseconds_for_its_bounds(plans, unit):
    """The event time of a window's row is 1 us before its end, and so are the bounds of sessions of such rows."""
    times = plans.stream(pa.schema({"ts": pa.timestamp(unit, "UTC"), "carrier": pa.string()}))
    rows = times.key_by("carrier").window(hg.tumble("1 min")).aggregate(rows=hg.count())

    def sessions(rows):
        return rows.key_by("carrier").window(hg.session("2 min")).aggregate(rows=hg.sum("rows"))

    cast = rows.with_columns(window_end="cast(window_end as timestamp)")
    assert sessions(cast).schema.field("window_end").type == pa.timestamp("us", "UTC")
    assert windowed(rows).schema.field("window_end").type == pa.timestamp(unit, "UTC")
    if unit in ("us", "ns"):
        assert sessions(rows).schema.field("window_end").type == pa.timestamp(unit, "UTC")
        return
    for earlier in (rows, rows.select("carrier", "rows")):
        with pytest.raises(hg.PlanError, match=r"is 1 us before the end of .* cast it to timestamp\('us'\) directly"):
            sessions(earlier)
