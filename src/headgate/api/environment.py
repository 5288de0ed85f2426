"""`StreamEnvironment`: where a plan starts and where it is run."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.api.builder import GraphBuilder, Upstream
from headgate.api.checks import check_label, check_parallelism, check_schema
from headgate.api.explain import describe
from headgate.api.lost_changes import warn_of_lost_changes
from headgate.api.overwrites import check_overwrites
from headgate.api.results import check_batch, check_end_sinks, check_ends, check_limit, finish, wait_for_rows
from headgate.api.stream import DataStream
from headgate.api.watermark import Watermark
from headgate.config import Config
from headgate.connectors.built_in_sinks import parquet
from headgate.connectors.collect_sink import CollectSink
from headgate.connectors.connector import Sink, Source
from headgate.connectors.file_sink import FileSink
from headgate.connectors.frames import as_table, is_frame
from headgate.connectors.iterable_source import FactorySource, ListSource
from headgate.errors import ConfigError, PlanError
from headgate.other_names import OtherNames
from headgate.plan.graph import EventTime, Side
from headgate.plan.job_graph import build_job_graph
from headgate.runtime.deployment import Deployment
from headgate.runtime.launch.local import LocalDeployment

if TYPE_CHECKING:
    from headgate.runtime.master.job import JobHandle, JobResult

_NO_SINK = (
    "nothing to run: no sink was added since the last run; end a stream with sink_to(...), collect() or to_dataframe()"
)


#: Set by `headgate run --from`: the checkpoint that the script's jobs go on from.
RESUME: Final = "HEADGATE_FROM"
#: Set if `headgate run --allow-duplicates` says so.
ALLOW_DUPLICATES: Final = "HEADGATE_ALLOW_DUPLICATES"


class StreamEnvironment(OtherNames):
    """Holds the streams of a program and runs them.

    `StreamEnvironment(spark)` runs them as tasks of that Spark session, `StreamEnvironment()` in processes of this
    machine: one for each slot, up to the number of cores. `deployment` says otherwise, for example
    `hg.LocalDeployment(processes=False)` for threads of this process. `parallelism` is the number of subtasks of
    operators that have none of their own. The Spark session is never stopped, and nothing has to be closed.
    """

    def __init__(
        self,
        spark: Any = None,
        *,
        parallelism: int = 1,
        config: Config | None = None,
        deployment: Deployment | None = None,
    ) -> None:
        if config is not None and not isinstance(config, Config):
            raise ConfigError(
                f"config must be a hg.Config, for example hg.Config(message_size='64 kb'), not {config!r}"
            )
        if spark is not None:
            _check_session(spark)
        if deployment is not None and not hasattr(deployment, "launch"):
            raise PlanError(
                f"StreamEnvironment: deployment must be hg.LocalDeployment(...) or hg.SparkDeployment(spark), "
                f"not {deployment!r}"
            )
        self.config = config or Config()
        self.parallelism = check_parallelism("StreamEnvironment", parallelism, self.config.max_parallelism)
        self._spark = spark
        self._deployment = LocalDeployment() if deployment is None and spark is None else deployment
        if self._deployment is not None:
            self._deployment.warm_up()
        self._graph = GraphBuilder()
        self._sinks: list[Sink] = []
        self._pending: list[int] = []
        self._last_run: list[int] = []

    def from_source(self, source: Source, *, watermark: Watermark | None = None) -> DataStream:
        """A stream of what a source of `hg.sources` reads. Windows need a `watermark`."""
        if not isinstance(source, Source):
            raise PlanError(f"from_source: a {type(source).__name__} is not a source; {_source_of(source)}")
        if watermark is not None and not isinstance(watermark, Watermark):
            raise PlanError(f"from_source: watermark must be a hg.Watermark, not {watermark!r}")
        source.configure(self.config)
        schema = check_schema("from_source", source.schema)
        event_time = None if watermark is None else EventTime(watermark.column)
        node_id = self._graph.add(
            default_name(source),
            parallelism=self.parallelism,
            schema=schema,
            source=source,
            sides={tag: Side(schema) for tag, schema in source.sides.items()},
            watermark=None if watermark is None else watermark.spec(schema),
            event_time=event_time,
            attributes={"kind": "source"},
        )
        return DataStream(self, (Upstream(node_id),), schema, event_time)

    def execute(self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False) -> JobResult:
        """Run what was added since the last run and wait for its end. Raises the job's error.

        `resume` is a checkpoint to go on from: its path or URI, or "latest" of those that a job of this name has in
        `checkpoint_dir`, or "latest-if-any", with which a job that has none yet starts afresh. None is a fresh start.
        What `headgate run --from` says comes before it. A checkpoint that is older than what a sink has shown is
        refused, unless `allow_duplicates`: the rows between them are then there twice. A job over an unbounded source
        ends when it is interrupted (Ctrl-C cancels it) or fails.

        A program that starts or resumes a job takes it over: an older program that still runs a job of this name with
        this `checkpoint_dir` ends with Superseded.
        """
        return finish(self.execute_async(name, resume, allow_duplicates=allow_duplicates))

    def execute_async(
        self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False
    ) -> JobHandle:
        """Start what was added since the last run; see `execute`. Raises PlanError when that is nothing,
        CheckpointError for a checkpoint that the job cannot resume from."""
        if not self._pending:
            raise PlanError(_NO_SINK)
        self._last_run, self._pending = self._pending, []
        allow_duplicates = allow_duplicates or bool(os.environ.get(ALLOW_DUPLICATES))
        return self._submit(self._last_run, name, os.environ.get(RESUME) or resume, allow_duplicates)

    def explain(self) -> None:
        """Print the plan of the next run, or else of the last: chains of operators, exchanges, parallelism."""
        sinks = self._pending or self._last_run
        if not sinks:
            raise PlanError(_NO_SINK)
        print(describe(build_job_graph(self._graph.graph(sinks))))

    # For DataStream

    def _add_sink(self, stream: DataStream, sink: Sink) -> int:
        """Add a sink, which the next run then runs."""
        if any(sink is other for other in self._sinks):
            raise PlanError("sink_to: this sink object takes another stream already; make a second one, or use union()")
        sink.configure(self.config, self._spark)
        self._sinks.append(sink)
        self._pending.append(self._sink_node(stream, sink))
        return self._pending[-1]

    def _sink_node(self, stream: DataStream, sink: Sink) -> int:
        return self._graph.add(
            default_name(sink),
            stream._inputs,
            parallelism=stream._parallelism_below(),
            schema=stream.schema,
            sink=sink,
            attributes={"kind": "sink"},
        )

    def _collect(self, stream: DataStream, limit: int | None) -> pa.Table:
        check_limit(limit)
        rows = CollectSink(limit)
        sink = self._sink_node(stream, rows)
        if limit is not None:
            return wait_for_rows(self._submit([sink], "collect"), rows)
        self._run_to_the_end(sink, "collect")
        return rows.to_table()

    def _to_dataframe(self, stream: DataStream) -> Any:
        if self._spark is None:
            raise PlanError("to_dataframe() needs Spark: StreamEnvironment(spark); without it use collect()")
        from headgate.spark.dataframe import read_folder, spark_columns, spill_folder

        columns = spark_columns("to_dataframe", stream.schema)
        folder = spill_folder(self._spark, self.config.spill_dir)
        sink = self._sink_node(stream, parquet(folder))
        self._run_to_the_end(sink, "to_dataframe")
        return read_folder(self._spark, folder, columns)

    def _run_to_the_end(self, sink: int, name: str) -> None:
        """Run `sink` and whatever else was added since the last run."""
        check_ends(f"{name}()", self._graph.graph([*self._pending, sink]))
        self._pending.append(sink)
        self.execute(name)

    def _spilled(self, table: Any) -> Any:
        """A Spark DataFrame as files that every subtask can read, a frame of pandas and the like as Arrow's; anything
        else as it is."""
        if is_frame(table):
            return as_table(table, "lookup: the frame")
        if not type(table).__module__.startswith("pyspark."):
            return table
        from headgate.spark.dataframe import spill

        return spill(table, self.config.spill_dir)

    def _submit(
        self, sinks: list[int], name: str, resume: str | None = None, allow_duplicates: bool = False
    ) -> JobHandle:
        from headgate.runtime.master.job import submit  # loaded while TaskManagers' processes start

        graph = self._graph.graph(sinks)
        if self.config.is_batch:
            check_batch(graph)
        if self.config.checkpoint_dir is None:
            check_end_sinks(graph)
        check_overwrites(graph, self.config.checkpoint_dir)
        deployment = self._deployed()
        if deployment.copies_functions:
            warn_of_lost_changes(graph)
        name = check_label("the job's name", name)
        return submit(graph, name, self.config, deployment, resume, allow_duplicates)

    def _deployed(self) -> Deployment:
        if self._deployment is None:
            from headgate.spark.spark_deployment import SparkDeployment

            self._deployment = SparkDeployment(self._spark)
        return self._deployment


def _check_session(spark: Any) -> None:
    """Raises PlanError for what is no Spark session, ConfigError for one that can run no job."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(spark).__mro__}
    if not kinds & {"pyspark.sql.session.SparkSession", "pyspark.sql.connect.session.SparkSession"}:
        given = f"a {type(spark).__name__}" if isinstance(spark, Config) else repr(spark)
        raise PlanError(
            f"StreamEnvironment: the first argument is a SparkSession, not {given}; name the others: "
            "StreamEnvironment(parallelism=2, config=hg.Config(...))"
        )
    from headgate.spark.session import context_of

    context_of(spark)


def _source_of(given: object) -> str:
    """What to write in place of something that is no source."""
    if type(given).__module__.startswith("pyspark."):
        return "for a DataFrame of Spark write from_source(hg.sources.dataframe(df))"
    if isinstance(given, (list, tuple, pa.RecordBatch)) or is_frame(given):
        return "write from_source(hg.sources.iterable(...)) for rows, batches or a frame"
    if isinstance(given, (str, os.PathLike)):
        return f"use one of hg.sources: for files hg.sources.csv({os.fspath(given)!r}), or parquet, json_lines, text"
    return "use one of hg.sources, for example hg.sources.iterable([batch])"


def default_name(connector: Source | Sink) -> str:
    """`csv` for what reads or writes CSV files, `for_each_batch` for a ForEachBatchSink, `iterable` for both kinds of
    iterables."""
    if isinstance(connector, FileSink):
        return connector.format_name
    if isinstance(connector, (ListSource, FactorySource)):
        return "iterable"
    words = re.findall("[A-Z][a-z0-9]*", type(connector).__name__)
    return "_".join(words[:-1] or words).lower()
