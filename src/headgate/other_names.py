"""Names of Flink and Spark, and what to write in Headgate instead: one table for all classes and modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

_SLOTS: Final = "hg.StreamEnvironment(parallelism=2)"
_FIRES: Final = (
    'allowed_lateness("10 min"): a window emits its row when the watermark reaches its end, and again for each late '
    "row within this time"
)
_SQL: Final = 'filter("a > 1"), select(b="a + 1"): SQL is for expressions, not for whole queries'
_STOP: Final = "job = env.execute_async(), then job.stop() or job.cancel(); nothing closes an environment"
#: What to write in place of each name.
_INSTEAD: Final = {
    # Streams
    **dict.fromkeys(("keyBy", "partitionBy", "groupByKey", "group_by_key"), 'key_by("column")'),
    **dict.fromkeys(
        ("groupBy", "group_by", "groupby", "agg", "sum", "min", "max", "mean", "avg"),
        'key_by("column").aggregate(total=hg.sum("value"))',
    ),
    "count": 'key_by("column").aggregate(rows=hg.count()), or key_by() for all rows',
    **dict.fromkeys(
        (
            "reduce",
            "fold",
            "reduceByKey",
            "updateStateByKey",
            "mapGroupsWithState",
            "transformWithState",
            "flatMapGroupsWithState",
            "applyInPandasWithState",
            "transformWithStateInPandas",
        ),
        'key_by("column").aggregate(total=hg.sum("value")), or key_by("column").process(function, schema=...) with a '
        "hg.KeyedProcessFunction",
    ),
    "flatMap": "flat_map(fn, schema=...)",
    **dict.fromkeys(
        ("mapPartitions", "map_partitions", "mapInArrow", "mapInPandas", "map_in_arrow", "apply", "transform"),
        "map_batches(fn, schema=...), whose function gets a RecordBatch",
    ),
    **dict.fromkeys(("where", "query"), 'filter("a > 1")'),
    **dict.fromkeys(("branch", "split"), 'filter("a > 1") once for each branch: a stream may be used more than once'),
    **dict.fromkeys(
        ("withColumn", "with_column", "withColumns", "assign", "mapValues", "map_values"),
        'with_columns(name="expression")',
    ),
    **dict.fromkeys(
        ("selectExpr", "project", "withColumnRenamed", "rename", "drop"), 'select("column", name="expression")'
    ),
    **dict.fromkeys(("columns", "dtypes", "printSchema"), "schema.names, schema.types or print(stream.schema)"),
    "peek": "map_batches(fn, schema=stream.schema), whose function returns the batch it was given",
    **dict.fromkeys(
        ("assignTimestampsAndWatermarks", "assign_timestamps_and_watermarks", "withWatermark", "with_watermark"),
        'from_source(source, watermark=hg.Watermark("column"))',
    ),
    **dict.fromkeys(("windowAll", "window_all", "timeWindow", "timeWindowAll"), 'key_by().window(hg.tumble("1 min"))'),
    **dict.fromkeys(
        ("coGroup", "co_group", "connect", "intervalJoin", "interval_join", "crossJoin"),
        'join(other, on="column", within=("-5 min", "5 min")) for a stream; lookup(table, on="column") for a table',
    ),
    **dict.fromkeys(("unionAll", "unionByName", "merge"), "union(other)"),
    **dict.fromkeys(
        ("distinct", "dropDuplicates", "drop_duplicates", "dropDuplicatesWithinWatermark"),
        'deduplicate("column")',
    ),
    **dict.fromkeys(("maxBy", "argmax", "nlargest"), 'key_by("column").max_by("value"), or top(3, by="value")'),
    **dict.fromkeys(("minBy", "argmin", "nsmallest"), 'key_by("column").min_by("value")'),
    **dict.fromkeys(
        ("orderBy", "sort", "sort_by", "sort_values"),
        'collect().sort_by("column"): a stream that has no end cannot be sorted',
    ),
    **dict.fromkeys(("limit", "take", "head", "first"), "collect(limit=10)"),
    **dict.fromkeys(("execute_and_collect", "executeAndCollect"), "collect()"),
    **dict.fromkeys(("toPandas", "to_pandas"), "collect().to_pandas()"),
    **dict.fromkeys(("toDF", "toDataFrame"), "to_dataframe()"),
    **dict.fromkeys(("print", "show"), "sink_to(hg.sinks.printer()), then env.execute()"),
    **dict.fromkeys(
        ("addSink", "add_sink", "sinkTo", "write", "writeStream"),
        'sink_to(hg.sinks.parquet("out/")), then env.execute()',
    ),
    **dict.fromkeys(
        ("foreach", "forEach", "for_each", "for_each_batch"), "sink_to(hg.sinks.for_each_batch(fn)), then env.execute()"
    ),
    **dict.fromkeys(
        ("foreachBatch", "foreach_batch"),
        "sink_to(hg.sinks.foreach_dataframe(fn)), whose function gets a DataFrame of Spark, or "
        "hg.sinks.for_each_batch(fn), whose function gets Arrow's batches; then env.execute()",
    ),
    "setParallelism": "set_parallelism(2)",
    **dict.fromkeys(("repartition", "coalesce"), "rebalance(), and set_parallelism(2) after the next operator"),
    **dict.fromkeys(("partitionCustom", "partition_custom"), "partition_by(fn)"),
    **dict.fromkeys(("global_", "globally"), "to_one()"),
    **dict.fromkeys(("getSideOutput", "get_side_output"), 'side_output("tag")'),
    **dict.fromkeys(("disableChaining", "startNewChain", "start_new_chain"), "disable_chaining()"),
    "allowedLateness": 'allowed_lateness("10 min")',
    **dict.fromkeys(
        ("process_window", "processWindow", "ProcessWindowFunction"),
        'aggregate(values=hg.collect_list("value")), then map(fn, schema=...) on the lists',
    ),
    **dict.fromkeys(("sideOutputLateData", "side_output_late_data"), 'late_output("tag")'),
    # Environments and jobs
    **dict.fromkeys(
        ("fromCollection", "from_collection", "fromElements", "from_elements", "parallelize", "createDataFrame"),
        "from_source(hg.sources.iterable([batch]))",
    ),
    **dict.fromkeys(
        ("addSource", "add_source", "fromSource", "read", "readStream", "read_csv"),
        'from_source(hg.sources.csv("in/*.csv", schema=...))',
    ),
    "read_parquet": 'from_source(hg.sources.parquet("in/"))',
    "read_json": 'from_source(hg.sources.json_lines("in/*.json", schema=...))',
    **dict.fromkeys(
        ("readTextFile", "read_text_file", "textFile", "read_text"), 'from_source(hg.sources.text("in/*.txt"))'
    ),
    "socketTextStream": 'from_source(hg.sources.socket_lines("host", 9999))',
    **dict.fromkeys(
        ("enableCheckpointing", "enable_checkpointing"),
        'hg.StreamEnvironment(config=hg.Config(checkpoint_dir="checkpoints/", checkpoint_interval="10 s"))',
    ),
    **dict.fromkeys(("executeAsync", "start"), "execute_async(), which returns a JobHandle"),
    **dict.fromkeys(("awaitTermination", "await_termination"), "job = env.execute_async(), then job.wait()"),
    **dict.fromkeys(
        ("StreamExecutionEnvironment", "get_execution_environment", "getExecutionEnvironment", "StreamingContext"),
        "hg.StreamEnvironment(spark, parallelism=2), or without spark for this machine",
    ),
    # Modules
    "WatermarkStrategy": 'hg.Watermark("column", out_of_orderness="5 s")',
    **dict.fromkeys(("tumbling", "Tumble", "TumblingEventTimeWindows"), 'hg.tumble("1 min")'),
    **dict.fromkeys(("sliding", "slide", "Slide", "SlidingEventTimeWindows"), 'hg.hop("10 min", every="1 min")'),
    **dict.fromkeys(("Session", "SessionWindow", "session_window", "EventTimeSessionWindows"), 'hg.session("30 min")'),
    **dict.fromkeys(
        (
            "countWindow",
            "count_window",
            "CountWindow",
            "CountTrigger",
            "PurgingTrigger",
            "CountEvictor",
            "GlobalWindows",
        ),
        "window(hg.count_window(100)), or hg.count_window(100, every=10) for windows that overlap",
    ),
    "TumblingProcessingTimeWindows": 'hg.tumble("1 min", time="processing")',
    "SlidingProcessingTimeWindows": 'hg.hop("10 min", every="1 min", time="processing")',
    "ProcessingTimeSessionWindows": 'hg.session("30 min", time="processing")',
    **dict.fromkeys(
        ("Time", "Duration", "timedelta", "seconds", "minutes"),
        'tumble("5 s"): times are strings with a unit, everywhere',
    ),
    **dict.fromkeys(("average", "avg", "AVG"), 'hg.mean("column")'),
    **dict.fromkeys(
        ("udaf", "UDAF", "Aggregator", "pandas_udf"), "hg.AggregateFunction, the base class of aggregates of your own"
    ),
    **dict.fromkeys(("median", "percentile", "percentile_approx", "approx_percentile"), 'hg.quantile("column", 0.5)'),
    **dict.fromkeys(("std", "stddev_samp"), 'hg.stddev("column")'),
    **dict.fromkeys(("variance", "var_samp"), 'hg.var("column")'),
    **dict.fromkeys(("count_if", "countIf"), 'hg.count(where="a > 1"); every aggregate has where='),
    **dict.fromkeys(("col", "expr", "lit"), 'filter("a > 1"), select(b="a + 1") and the like: SQL as strings'),
    "OutputTag": 'hg.SideOutput("tag", rows), with side_outputs={"tag": schema} in the call that takes the function',
    **dict.fromkeys(("ValueStateDescriptor", "ReducingState", "AggregatingState"), "hg.ValueState(pa.int64())"),
    "ListStateDescriptor": "hg.ListState(pa.int64())",
    "MapStateDescriptor": "hg.MapState(pa.string(), pa.int64())",
    **dict.fromkeys(("countDistinct", "collect_set"), 'hg.count_distinct("column")'),
    **dict.fromkeys(("json", "jsonl"), "json_lines"),
    **dict.fromkeys(("folder", "directory", "watch"), 'files("in/", format="csv", watch=True)'),
    **dict.fromkeys(
        ("list", "collection", "elements", "memory", "pandas", "polars", "table", "frame", "from_pandas"),
        "iterable(frame), or iterable([batch])",
    ),
    "spark": "dataframe(spark_df)",
    "socket": 'socket_lines("host", 9999)',
    **dict.fromkeys(("range", "rate", "datagen"), "generate(fn, rows=1000)"),
    **dict.fromkeys(("console", "stdout"), "printer()"),
}

_ROWS: Final = "return or yield rows from the function that is called, or hg.SideOutput(tag, rows)"
_STATE: Final = "hg.ValueState(pa.int64()) as an attribute of the function's class; ctx.subtask says where it runs"
_CONTEXT: Final = {
    **dict.fromkeys(
        ("timer_service", "timerService"), "register_event_time_timer(time) and the other calls of the context itself"
    ),
    **dict.fromkeys(("get_current_key", "getCurrentKey", "current_key"), "key, a tuple"),
    **dict.fromkeys(("output", "collect", "emit", "out"), f"yield: {_ROWS}"),
    **dict.fromkeys(("current_watermark", "currentWatermark"), "watermark"),
    **dict.fromkeys(("current_processing_time", "currentProcessingTime"), "processing_time"),
    **dict.fromkeys(("get_state", "getState", "get_runtime_context", "getRuntimeContext"), _STATE),
}
_HANDLE: Final = {
    **dict.fromkeys(
        ("awaitTermination", "await_termination", "processAllAvailable", "result", "exception", "join",
         "get_job_execution_result", "getJobExecutionResult"), "wait(), which returns a JobResult or raises the error",
    ),
    **dict.fromkeys(("get_job_status", "getJobStatus", "isActive", "is_active", "done", "state"), "status()"),
    **dict.fromkeys(("stop_with_savepoint", "stopWithSavepoint"), 'stop(savepoint="savepoints/")'),
    **dict.fromkeys(("trigger_savepoint", "triggerSavepoint"), 'savepoint("savepoints/")'),
    **dict.fromkeys(("lastProgress", "recentProgress", "get_accumulators", "getAccumulators"), "metrics()"),
}  # fmt: skip
#: For classes that do not use `_INSTEAD`: what to write in place of each name. A name of `_INSTEAD` may mean something
#: else in such a class, or in a user's function.
_ON_THEIR_OWN: Final = {
    "ProcessContext": _CONTEXT,
    "KeyedProcessFunction": dict.fromkeys(
        ("get_runtime_context", "getRuntimeContext", "runtime_context", "get_state", "getState"), _STATE
    ),
    "KeyedBatchFunction": dict.fromkeys(
        ("get_runtime_context", "getRuntimeContext", "runtime_context", "get_state", "getState"),
        _STATE.replace("Value", "Column"),
    ),
    "BatchContext": {"timestamp": "timestamps", "key": "keys.first, the first row of each key"},
    "BatchKeys": {"slots": "of_row", "keys": "first, the first row of each key"},
    "ColumnState": {**dict.fromkeys(("value", "get"), "values()"), **dict.fromkeys(("set", "put"), "update(values)")},
    "ValueState": {"get": "value()", **dict.fromkeys(("set", "put", "setState"), "update(value)")},
    "ListState": {
        **dict.fromkeys(("value", "values"), "get()"),
        "append": "add(value)",
        **dict.fromkeys(("addAll", "extend"), "add_all(values)"),
    },
    "MapState": {
        "value": "get(key)",
        **dict.fromkeys(("putAll", "update"), "put_all(entries)"),
        "entries": "items()",
        "isEmpty": "is_empty()",
        **dict.fromkeys(("set", "add"), "put(key, value)"),
    },
    "JobHandle": _HANDLE,
    "JobResult": {
        **dict.fromkeys(("get_net_runtime", "getNetRuntime", "duration"), "duration_s"),
        **dict.fromkeys(("numInputRows", "num_input_rows"), "rows_in"),
        **dict.fromkeys(("get_all_accumulator_results", "getAllAccumulatorResults"), 'metrics["rows_in"] and the like'),
    },
}
_ADBC: Final = 'adbc("postgresql", uri, ...)'
#: What to write in place of a name in one class or module, where the name means something else than in `_INSTEAD`.
_INSTEAD_AT: Final = {
    "StreamEnvironment": {"setParallelism": _SLOTS, "set_parallelism": _SLOTS, "sql": _SQL, "stop": _STOP},
    "DataStream": {
        "parallelism": "set_parallelism(2)",
        "execute": "sink_to(hg.sinks.null()) or another sink, then env.execute()",
    },
    "StreamSink": {"collect": "collect() on the stream, in place of sink_to(...)", "execute": "env.execute()"},
    "headgate": {"window": 'key_by("column").window(hg.tumble("1 min")), of a stream with a watermark'},
    "WindowedStream": {
        **dict.fromkeys(("trigger", "evictor"), _FIRES),
        **dict.fromkeys(("sum", "min", "max", "mean", "avg", "agg", "reduce"), 'aggregate(total=hg.sum("value"))'),
        "count": "aggregate(rows=hg.count())",
    },
    "Aggregate": dict.fromkeys(("alias", "as_", "name"), 'aggregate(total=hg.sum("value")): the name stands before ='),
    "headgate.sources": {
        **dict.fromkeys(("kinesis", "pulsar"), "poll(fn, schema=...) with a client of your own"),
        **dict.fromkeys(("jdbc", "database", "sql", "postgres", "postgresql"), _ADBC),
    },
    "headgate.sinks": {
        "pulsar": "for_each_batch(fn) with a client of your own",
        **dict.fromkeys(("jsonl", "json_lines", "text"), 'json("out/")'),
        **dict.fromkeys(("files", "folder", "directory"), 'parquet("out/") or csv("out/")'),
        **dict.fromkeys(("list", "memory", "pandas", "table"), "collect()"),
        **dict.fromkeys(
            ("dataframe", "table_sink"),
            "foreach_dataframe(fn), whose function gets a DataFrame of Spark and writes it",
        ),
        **dict.fromkeys(("jdbc", "database", "sql", "postgres", "postgresql"), _ADBC),
    },
}


def advice(places: Sequence[str], name: str) -> str:
    """Return the end of a message: what to write in place of a name that a class or module lacks.

    `places` are names of classes or modules. The first place with a table of its own decides. The result is empty for
    an unknown name.
    """
    place = next((place for place in places if place in _ON_THEIR_OWN or place in _INSTEAD_AT), "")
    if place in _ON_THEIR_OWN:
        instead = _ON_THEIR_OWN[place].get(name)
    else:
        instead = _INSTEAD_AT.get(place, {}).get(name) or _INSTEAD.get(name)
    return f"; write {instead}" if instead else ""


class OtherNames:
    """A base class whose AttributeErrors say what to write in place of a name of Flink or Spark."""

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers report such names themselves

        def __getattr__(self, name: str) -> object:
            kind = type(self)
            if isinstance(getattr(kind, name, None), property):  # the property raised the AttributeError
                return object.__getattribute__(self, name)
            instead = advice([each.__name__ for each in kind.__mro__], name)
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}{instead}", name=name, obj=self)


def missing(module: str, name: str) -> AttributeError:
    """Return the AttributeError that a module's `__getattr__` raises for a name."""
    return AttributeError(f"module {module!r} has no attribute {name!r}{advice([module], name)}", name=name)
