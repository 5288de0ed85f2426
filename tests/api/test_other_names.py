"""A name of Flink or Spark is an AttributeError that says what to write instead."""

from __future__ import annotations

import copy
import pickle
import re

import pyarrow as pa
import pytest

import headgate as hg
from headgate.other_names import _INSTEAD, _INSTEAD_AT, _ON_THEIR_OWN


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("keyBy", "key_by("), ("groupBy", "key_by("), ("flatMap", "flat_map("), ("reduce", "aggregate("),
        ("addSink", "sink_to("), ("print", "hg.sinks.printer()"), ("map_partitions", "map_batches("),
        ("withColumn", "with_columns("), ("where", "filter("), ("assign_timestamps_and_watermarks", "hg.Watermark("),
    ],
)  # fmt: skip
def test_the_error_of_a_stream_names_its_own_call(plans, name, remedy):
    with pytest.raises(AttributeError) as caught:
        getattr(plans.stream(), name)
    assert str(caught.value).startswith(f"'DataStream' object has no attribute '{name}'; write ")
    assert remedy in str(caught.value)
    assert caught.value.name == name


class Sessions(hg.KeyedProcessFunction):
    """A user's function with a property that fails."""

    @property
    def total(self):
        return self.not_there + 1  # type: ignore[attr-defined]


#: Empty objects of classes that only a job makes.
CONTEXT = object.__new__(hg.ProcessContext)
HANDLE = object.__new__(hg.JobHandle)
RESULT = hg.JobResult(name="job", rows_in=0, rows_out=0, late_rows=0, duration_s=0.0, restarts=0, metrics={})
KEYS, BATCH_CONTEXT = hg.BatchKeys.of([1]), object.__new__(hg.BatchContext)
COLUMN, BATCHES = hg.ColumnState(pa.int64()), hg.KeyedBatchFunction()
VALUE, LIST, MAP = hg.ValueState(pa.int64()), hg.ListState(pa.int64()), hg.MapState(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("thing", "name", "remedy"),
    [
        (CONTEXT, "timer_service", "register_event_time_timer(time)"), (CONTEXT, "timerService", "register_event"),
        (CONTEXT, "get_current_key", "key"), (CONTEXT, "output", "hg.SideOutput("), (CONTEXT, "collect", "yield"),
        (CONTEXT, "current_watermark", "watermark"), (CONTEXT, "get_state", "hg.ValueState("),
        (Sessions(), "get_runtime_context", "hg.ValueState("), (Sessions(), "getRuntimeContext", "hg.ValueState("),
        (VALUE, "get", "value()"), (VALUE, "set", "update("), (LIST, "append", "add("), (LIST, "addAll", "add_all("),
        (COLUMN, "value", "values()"), (COLUMN, "put", "update("), (KEYS, "slots", "of_row"),
        (BATCH_CONTEXT, "timestamp", "timestamps"), (BATCHES, "get_runtime_context", "hg.ColumnState("),
        (LIST, "value", "get()"), (MAP, "putAll", "put_all("), (MAP, "isEmpty", "is_empty()"), (MAP, "value", "get("),
        (HANDLE, "awaitTermination", "wait()"), (HANDLE, "result", "wait()"), (HANDLE, "isActive", "status()"),
        (HANDLE, "stop_with_savepoint", "stop(savepoint="), (HANDLE, "trigger_savepoint", "savepoint("),
        (RESULT, "get_net_runtime", "duration_s"), (RESULT, "numInputRows", "rows_in"),
    ],
)  # fmt: skip
def test_a_foreign_name_on_a_function_a_state_or_a_job_leads_to_the_remedy(thing, name, remedy):
    with pytest.raises(AttributeError) as caught:
        getattr(thing, name)
    assert str(caught.value).startswith(f"{type(thing).__name__!r} object has no attribute {name!r}; write ")
    assert remedy in str(caught.value)


@pytest.mark.parametrize("thing", [CONTEXT, Sessions(), VALUE, LIST, MAP, COLUMN, KEYS, BATCHES, HANDLE, RESULT])
def test_names_of_streams_get_no_advice_elsewhere(thing):
    """An attribute of a user's function that is not set yet may have any name."""
    for name in ("keyBy", "groupBy", "sum", "nonsense"):
        with pytest.raises(AttributeError, match=f"^'{type(thing).__name__}' object has no attribute '{name}'$"):
            getattr(thing, name)


def test_an_error_in_a_users_property_names_the_attribute_that_it_lacks():
    with pytest.raises(AttributeError, match="has no attribute 'not_there'"):
        _ = Sessions().total
    assert pickle.loads(pickle.dumps(RESULT)) == copy.copy(RESULT) == RESULT
    assert vars(copy.copy(VALUE)) == vars(VALUE)


def test_no_name_of_the_table_exists_and_every_remedy_does(plans):
    stream = plans.stream()
    keyed = stream.key_by("carrier")
    things = [plans.env, stream, keyed, keyed.window(hg.tumble("1 s")), stream.sink_to(hg.sinks.null())]
    others = [CONTEXT, Sessions(), VALUE, LIST, MAP, COLUMN, KEYS, BATCHES, BATCH_CONTEXT, HANDLE, RESULT]
    calls = {"yield", "watermark"}.union(*map(dir, (*things, *others, hg, hg.sources, hg.sinks)))
    for name, remedy in _INSTEAD.items():
        assert not hasattr(stream, name), name
        assert not hasattr(plans.env, name), name
        assert _first_call(remedy) in calls, f"{name}: there is no {_first_call(remedy)}"
    places = {
        "StreamEnvironment": plans.env,
        "DataStream": stream,
        "StreamSink": things[4],
        "WindowedStream": things[3],
        "Aggregate": hg.count(),
        "headgate": hg,
        "headgate.sources": hg.sources,
        "headgate.sinks": hg.sinks,
        "KeyedProcessFunction": others[1],
        **{type(thing).__name__: thing for thing in others if not isinstance(thing, Sessions)},
    }
    at_places = {**_INSTEAD_AT, **_ON_THEIR_OWN}
    assert places.keys() == at_places.keys()
    for place, names in at_places.items():
        for name, remedy in names.items():
            assert not hasattr(places[place], name), f"{place} has {name}"
            assert _first_call(remedy) in calls, f"{name}: there is no {_first_call(remedy)}"


def _first_call(remedy: str) -> str:
    """The name that a remedy begins with."""
    return re.split(r"[(,.:[]", remedy.removeprefix("job = ").removeprefix("env.").removeprefix("hg."))[0]


@pytest.mark.parametrize("name", ["count", "sum", "reduce"])
def test_the_error_of_a_window_names_its_own_call(plans, name):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; write aggregate\("):
        getattr(plans.stream().key_by("carrier").window(hg.tumble("1 h")), name)


def test_environments_and_modules_name_their_own_calls(plans):
    with pytest.raises(AttributeError, match=r"has no attribute 'from_collection'; write from_source\("):
        plans.env.from_collection([1])
    with pytest.raises(AttributeError, match=r"'headgate' has no attribute 'TumblingEventTimeWindows'; .*hg.tumble"):
        _ = hg.TumblingEventTimeWindows
    with pytest.raises(AttributeError, match=r"module 'headgate.sources' has no attribute 'json'; write json_lines"):
        _ = hg.sources.json  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"module 'headgate.sinks' has no attribute 'console'; write printer\(\)"):
        _ = hg.sinks.console  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="^module 'headgate' has no attribute 'nonsense'$"):
        _ = hg.nonsense


@pytest.mark.parametrize("name", ["collect", "sink_to", "filter", "map_batches", "to_dataframe"])
def test_the_error_of_a_window_says_to_aggregate_first(plans, name):
    windows = plans.stream().key_by("carrier").window(hg.tumble("1 s"))
    with pytest.raises(AttributeError, match=rf"aggregate them first, .*\.aggregate\(rows=.*\.{name}\(\.\.\.\)"):
        getattr(windows, name)()


def test_copy_pickle_and_hasattr_still_work(plans):
    stream = plans.stream()
    windows = stream.key_by("carrier").window(hg.tumble("1 s"))
    for thing in (plans.env, stream, windows):
        assert not hasattr(thing, "keyBy")
        assert not hasattr(thing, "nonsense")
        assert getattr(thing, "keyBy", None) is None
        assert "keyBy" not in dir(thing)
        copied = copy.copy(thing)
        assert type(copied) is type(thing)
        assert vars(copied) == vars(thing)
    pickled = pickle.loads(pickle.dumps(windows._windows))
    assert pickled == windows._windows
    with pytest.raises(AttributeError, match="^'DataStream' object has no attribute 'nonsense'$"):
        _ = stream.nonsense


@pytest.mark.parametrize(
    ("place", "name", "remedy"),
    [
        (hg, "avg", r"write hg\.mean\("), (hg, "Session", r"write hg\.session\("),
        (hg, "OutputTag", r"hg\.SideOutput\("), (hg, "ValueStateDescriptor", r"hg\.ValueState\("),
        (hg, "col", "SQL as strings"),
        (hg.sinks, "pulsar", r"for_each_batch\("),
        (hg.sinks, "jsonl", r"json\("), (hg.sources, "json", "json_lines"),
        (hg.sum("value"), "alias", r"write aggregate\(total=hg\.sum\("),
    ],
)  # fmt: skip
def test_the_same_name_has_another_remedy_in_another_place(place, name, remedy):
    with pytest.raises(AttributeError, match=remedy):
        getattr(place, name)


def test_the_error_of_set_parallelism_names_the_constructor(plans):
    with pytest.raises(AttributeError, match=r"write hg\.StreamEnvironment\(parallelism=2\)"):
        plans.env.set_parallelism(2)


@pytest.mark.parametrize("name", ["groupByKey", "mapValues", "branch", "peek", "rename", "columns", "printSchema"])
def test_more_names_of_streams_have_a_remedy(plans, name):
    with pytest.raises(AttributeError, match="; write "):
        getattr(plans.stream(), name)


def test_indexing_and_iterating_a_stream_say_what_to_write(plans):
    for use in (lambda: plans.stream()["delay"], lambda: list(plans.stream())):
        with pytest.raises(TypeError, match=r"a DataStream is not a frame.*select\("):
            use()


def test_a_result_without_a_name_is_refused(plans):
    stream, total = plans.stream(), hg.sum("delay")
    keyed = stream.key_by("carrier")
    for aggregated in (keyed, keyed.window(hg.tumble("1 s"))):
        with pytest.raises(hg.PlanError, match=r"sum\('delay'\) has no name.*aggregate\(total=hg\.sum\('delay'\)\)"):
            aggregated.aggregate(total)
    with pytest.raises(hg.PlanError, match="key_by"):
        stream.aggregate(total)
    with pytest.raises(hg.PlanError, match=r"delay \+ 1 has no name.*with_columns\(total="):
        stream.with_columns("delay + 1")
    with pytest.raises(hg.PlanError, match=r'filter\("a > 1 and b > 1"\)'):
        stream.filter("delay > 1", "delay < 5")
