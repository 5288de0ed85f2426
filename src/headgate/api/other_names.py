"""What people who know Flink or Spark look for, and how Headgate calls it: one table for all classes and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

#: What to write in place of each name.
_INSTEAD: Final = {
    # Streams
    **dict.fromkeys(("keyBy", "partitionBy"), 'key_by("column")'),
    **dict.fromkeys(
        ("groupBy", "group_by", "groupby", "agg", "sum", "min", "max", "mean", "avg", "count"),
        'key_by("column").aggregate(total=hg.sum("value"))',
    ),
    **dict.fromkeys(
        ("reduce", "fold", "reduceByKey", "updateStateByKey", "mapGroupsWithState", "transformWithState"),
        'key_by("column").aggregate(total=hg.sum("value")), or key_by("column").process(function, schema=...) with a '
        "hg.KeyedProcessFunction",
    ),
    "flatMap": "flat_map(fn, schema=...)",
    **dict.fromkeys(
        ("mapPartitions", "map_partitions", "mapInArrow", "mapInPandas", "map_in_arrow", "apply", "transform"),
        "map_batches(fn, schema=...), whose function gets a RecordBatch",
    ),
    "where": 'filter("a > 1")',
    **dict.fromkeys(("withColumn", "with_column", "withColumns"), 'with_columns(name="expression")'),
    **dict.fromkeys(("selectExpr", "project", "withColumnRenamed", "drop"), 'select("column", name="expression")'),
    **dict.fromkeys(
        ("assignTimestampsAndWatermarks", "assign_timestamps_and_watermarks", "withWatermark", "with_watermark"),
        'from_source(source, watermark=hg.Watermark("column"))',
    ),
    **dict.fromkeys(("windowAll", "window_all", "timeWindow", "timeWindowAll"), 'key_by().window(hg.tumble("1 min"))'),
    **dict.fromkeys(
        ("join", "coGroup", "co_group", "connect", "intervalJoin", "interval_join"),
        'lookup(table, on="column") for a table; a join of two streams is not there yet',
    ),
    **dict.fromkeys(("unionAll", "unionByName"), "union(other)"),
    **dict.fromkeys(
        ("distinct", "dropDuplicates", "drop_duplicates"),
        'key_by("column").process(function, schema=...) with a hg.ValueState that says whether the key was there',
    ),
    **dict.fromkeys(("orderBy", "sort", "sort_by"), 'collect().sort_by("column"): a stream has no end to be sorted at'),
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
        ("foreach", "forEach", "for_each", "foreachBatch", "foreach_batch", "for_each_batch"),
        "sink_to(hg.sinks.for_each_batch(fn)), then env.execute()",
    ),
    "setParallelism": "set_parallelism(2)",
    **dict.fromkeys(("repartition", "coalesce"), "rebalance(), and set_parallelism(2) after the next operator"),
    **dict.fromkeys(("partitionCustom", "partition_custom"), "partition_by(fn)"),
    **dict.fromkeys(("global_", "globally"), "to_one()"),
    **dict.fromkeys(("getSideOutput", "get_side_output"), 'side_output("tag")'),
    **dict.fromkeys(("disableChaining", "startNewChain", "start_new_chain"), "disable_chaining()"),
    "allowedLateness": 'allowed_lateness("10 min")',
    **dict.fromkeys(("sideOutputLateData", "side_output_late_data"), 'late_output("tag")'),
    # Environments and jobs
    **dict.fromkeys(
        ("fromCollection", "from_collection", "fromElements", "from_elements", "parallelize", "createDataFrame"),
        "from_source(hg.sources.iterable([batch]))",
    ),
    **dict.fromkeys(
        ("addSource", "add_source", "fromSource", "read", "readStream"),
        'from_source(hg.sources.csv("in/*.csv", schema=...))',
    ),
    **dict.fromkeys(("readTextFile", "read_text_file", "textFile"), 'from_source(hg.sources.text("in/*.txt"))'),
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
    **dict.fromkeys(
        ("tumbling", "Tumble", "TumblingEventTimeWindows", "TumblingProcessingTimeWindows"), 'hg.tumble("1 min")'
    ),
    **dict.fromkeys(
        ("sliding", "slide", "Slide", "SlidingEventTimeWindows", "SlidingProcessingTimeWindows"),
        'hg.hop("10 min", every="1 min")',
    ),
    "average": 'hg.mean("column")',
    **dict.fromkeys(("countDistinct", "approx_count_distinct", "collect_set"), 'hg.count_distinct("column")'),
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


def advice(name: str) -> str:
    """What to write in place of a name, for the end of a message; empty for a name that nobody would look for."""
    return f"; write {_INSTEAD[name]}" if name in _INSTEAD else ""


class OtherNames:
    """A missing attribute that Flink or Spark has is an AttributeError that says how Headgate calls it."""

    if not TYPE_CHECKING:  # type checkers are to report such names themselves

        def __getattr__(self, name: str) -> object:
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{advice(name)}", name=name, obj=self)


def missing(module: str, name: str) -> AttributeError:
    """For the `__getattr__` of a module."""
    return AttributeError(f"module {module!r} has no attribute {name!r}{advice(name)}", name=name)
