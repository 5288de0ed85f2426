"""Keys, windows and aggregates in the plan, and the arguments that they refuse."""

from __future__ import annotations

import pickle
from typing import get_args

import pyarrow as pa
import pytest

import headgate as hg
from headgate.api.rows_by_key import operator_of
from headgate.operators.ranked_rows import RankedRows
from headgate.operators.windows.clock_windows import ByClock
from headgate.operators.windows.window_kinds import TimeWindows
from headgate.operators.windows.window_operator import WindowOperator


def test_a_windows_columns_are_keys_bounds_and_aggregates(plans):
    windows = plans.stream().key_by("carrier", "origin").window(hg.hop("1 h", every="10 min"))
    stream = windows.aggregate(flights=hg.count(), mean=hg.mean("delay"))
    assert stream.schema == pa.schema(
        [
            pa.field("carrier", pa.string()),
            pa.field("origin", pa.string()),
            pa.field("window_start", pa.timestamp("us"), nullable=False),
            pa.field("window_end", pa.timestamp("us"), nullable=False),
            pa.field("flights", pa.int64(), nullable=False),
            pa.field("mean", pa.float64()),
        ]
    )
    node = plans.node(stream, "window")
    bound = "out_of_orderness=0 s, allowed_lateness=0 s"
    assert node.attributes == {"kind": "window", "shown": "hop(1 h, every=10 min)", "bound": bound, "by_time": "ts"}
    pickle.loads(pickle.dumps(node.operator))()


def test_a_running_aggregates_columns_are_keys_and_aggregates(plans):
    stream = plans.stream().key_by("carrier").aggregate(final=True, most=hg.max("delay"))
    assert stream.schema.names == ["carrier", "most"]
    operator = pickle.loads(pickle.dumps(plans.node(stream, "aggregate").operator))
    assert operator.keywords["final"] is True


@pytest.mark.parametrize(("keys", "parallelism"), [((), 1), (("carrier",), 2)])
def test_one_global_key_has_one_subtask(plans, keys, parallelism):
    stream = plans.stream().key_by(*keys).aggregate(rows=hg.count())
    assert plans.node(stream, "aggregate").parallelism == parallelism


@pytest.mark.parametrize(
    ("aggregates", "words"),
    [
        ({}, "at least one aggregate"),
        ({"x": hg.sum("carrier")}, "sum takes numbers"),
        ({"x": hg.sum("dely")}, "there is no column 'dely'; the columns are 'ts', 'carrier'"),
        ({"x": hg.sum("__event_time__")}, "there is no column '__event_time__'"),
        ({"x": "count"}, "x='count' is not an aggregate"),
        ({"carrier": hg.count()}, "two columns of the result would be called 'carrier'"),
        ({"__event_time__": hg.count()}, "reserved"),
    ],
)
def test_impossible_aggregates_are_refused(plans, aggregates, words):
    keyed = plans.stream().select("ts", "carrier", "delay").key_by("carrier")
    for aggregate in (keyed.aggregate, keyed.window(hg.tumble("1 h")).aggregate):
        with pytest.raises(hg.PlanError, match=words):
            aggregate(**aggregates)


def test_no_key_may_have_the_name_of_a_window_bound(plans):
    keyed = plans.stream().with_columns(window_end="ts").key_by("window_end")
    with pytest.raises(hg.PlanError, match="'window_end'"):
        keyed.window(hg.tumble("1 h")).aggregate(rows=hg.count())


@pytest.mark.parametrize(
    "make", [lambda: hg.tumble("-1 s"), lambda: hg.hop("1 s", every="2 s"), lambda: hg.tumble("x")]
)
def test_impossible_windows_are_refused(make):
    with pytest.raises(hg.PlanError, match="window:"):
        make()


def test_a_column_of_lists_cannot_be_a_key(plans):
    with pytest.raises(hg.PlanError, match="key column 'tags'"):
        plans.stream(pa.schema({"tags": pa.list_(pa.string())}), timed=False).key_by("tags")


def test_a_column_may_be_called_self(plans):
    stream = plans.stream().with_columns(self="delay").select(self="self").key_by("self").aggregate(rows=hg.count())
    assert stream.schema.names == ["self", "rows"]


def test_window_refuses_a_duration(plans):
    with pytest.raises(hg.PlanError, match=r"use hg\.tumble\(size\)"):
        plans.stream().key_by("carrier").window("1 h")


def test_windows_and_aggregates_need_keys(plans):
    for stream in (plans.stream(), plans.stream().key_by("carrier").filter("delay > 1")):
        with pytest.raises(hg.PlanError, match=r"window needs a key: write key_by\('column'\) directly before"):
            stream.window(hg.tumble("1 h"))
        with pytest.raises(hg.PlanError, match="aggregate needs a key"):
            stream.aggregate(rows=hg.count())


def test_an_aggregate_cannot_be_called_final(plans):
    with pytest.raises(hg.PlanError, match="cannot be called 'final'"):
        plans.stream().key_by("carrier").aggregate(final=hg.count())


class Process(hg.KeyedProcessFunction):
    value = hg.ValueState(pa.int64())

    def process(self, batch, ctx): ...


class ByRow(Process):
    def process_element(self, row, ctx): ...


class Twice(Process):
    other = hg.ListState(pa.int64(), name="value")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (Process, r"process: Process is a class; make one: process\(Process\(\), ...\)"),
        (
            lambda batch: None,
            "is not a hg.KeyedProcessFunction or hg.KeyedBatchFunction; for a function without state use map_batches",
        ),
        (hg.KeyedProcessFunction(), "must override either process or process_element"),
        (ByRow(), "ByRow must override either process or process_element, not both"),
        (Twice(), "Twice: value and other are both named 'value'"),
    ],
)
def test_process_refuses_wrong_functions(plans, function, says):
    with pytest.raises(hg.PlanError, match=says):
        plans.stream().key_by("carrier").process(function, schema=pa.schema({"a": pa.int64()}))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hg.ValueState(int), "a value state: the type must be a pyarrow.DataType such as pa.int64"),
        (lambda: hg.ListState(pa.null()), "a list state: null cannot be the type of a state"),
        (lambda: hg.MapState(pa.list_(pa.int64()), pa.int64()), "a map state, key: a column of type list"),
        (lambda: hg.ValueState(pa.int64(), ttl="soon"), "a value state: ttl: 'soon' is not a duration"),
        (lambda: hg.ValueState(pa.int64(), ttl=0), "a value state: ttl=0 is impossible: it must be above 0"),
    ],
)
def test_impossible_states_are_refused(make, says):
    with pytest.raises(hg.PlanError, match=says):
        make()


def test_process_needs_keys_and_keeps_event_time_with_its_column(plans):
    schema = plans.stream().schema
    with pytest.raises(hg.PlanError, match="process needs a key"):
        plans.stream().process(Process(), schema=schema)
    keyed = plans.stream().key_by("carrier")
    assert keyed.process(Process(), schema=schema)._rows.event_time == keyed._rows.event_time
    assert keyed.process(Process(), schema=pa.schema({"a": pa.int64()}))._rows.event_time is None


@pytest.mark.parametrize("is_ranked", [False, True])
@pytest.mark.parametrize("time", ["event", "processing"])
def test_every_kind_of_windows_has_operators_of_its_own(is_ranked, time):
    kinds: list[TimeWindows] = [hg.tumble("1 h", time=time), hg.session("1 h", time=time)]
    assert {type(kind) for kind in kinds} == set(get_args(TimeWindows))
    operators = [operator_of(kind, is_ranked=is_ranked) for kind in kinds]
    assert len(set(operators)) == len(kinds)
    for operator in operators:
        assert issubclass(operator, WindowOperator)
        assert issubclass(operator, ByClock) == (time == "processing")
        assert issubclass(operator, RankedRows) == is_ranked


def test_windows_without_operators_are_an_error():
    with pytest.raises(AssertionError, match="unreachable"):
        operator_of("1 h", is_ranked=False)  # type: ignore[arg-type]
