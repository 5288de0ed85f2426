"""`JobBuilder`: builds jobs from the streams and sinks that a program has added to its plan."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.api.builder import GraphBuilder
from headgate.api.checks import check_label
from headgate.api.explain import describe
from headgate.api.lost_changes import warn_of_lost_changes
from headgate.api.overwrites import check_overwrites
from headgate.api.planned_rows import PlannedRows
from headgate.api.results import (
    check_batch,
    check_end_sinks,
    check_ends,
    check_final_rows,
    finish,
    wait_for_rows,
    warn_of_final_rows,
)
from headgate.config import Config
from headgate.connectors.built_in_sinks import parquet
from headgate.connectors.collect_sink import CollectSink
from headgate.connectors.connector import Sink, Source
from headgate.connectors.file_sinks.file_sink import FileSink
from headgate.connectors.frames import as_table, is_frame
from headgate.connectors.iterable_source import FactorySource, ListSource
from headgate.errors import PlanError
from headgate.plan.graph import StreamGraph
from headgate.plan.job_graph import build_job_graph
from headgate.plan.used_columns import with_used_columns
from headgate.runtime.deployment import Deployment

if TYPE_CHECKING:
    from headgate.runtime.master.job import JobHandle

_NO_SINK = (
    "nothing to run: no sink was added since the last run; end a stream with sink_to(...), collect() or to_dataframe()"
)


#: The environment variable that `headgate run --from` sets: the checkpoint that the script's jobs resume from.
RESUME: Final = "HEADGATE_FROM"
#: The environment variable that `headgate run --allow-duplicates` sets.
ALLOW_DUPLICATES: Final = "HEADGATE_ALLOW_DUPLICATES"


class JobBuilder:
    """The graph of a program, and the sinks that its next run will run.

    If `deployment` is None, jobs run in the Spark session.
    """

    def __init__(self, config: Config, parallelism: int, spark: Any, deployment: Deployment | None) -> None:
        self.graph = GraphBuilder(parallelism)
        self.config = config
        #: The nodes of the sinks that the next run will run.
        self.pending: list[int] = []
        self._last_run: list[int] = []
        self._sinks: list[Sink] = []
        self._spark = spark
        self._deployment = deployment

    def add_sink(self, rows: PlannedRows, sink: Sink) -> int:
        """Add a sink to the next run, and return its node. Raises PlanError if the sink already belongs to a stream."""
        if any(sink is other for other in self._sinks):
            raise PlanError(
                "sink_to: this sink object already takes another stream; make another sink object, or use union()"
            )
        if not sink.takes_upserts:
            rows.check_append_only(f"sink_to({default_name(sink)})")
        if sink.upsert_key is not None:
            rows.check_upsert_key(f"sink_to({default_name(sink)})", sink.upsert_key)
        sink.configure(self.config, self._spark)
        self._sinks.append(sink)
        self.pending.append(self._sink_node(rows, sink))
        return self.pending[-1]

    def start(self, name: str, resume: str | None, allow_duplicates: bool) -> JobHandle:
        """Start a job of the sinks that were added since the last run. Raises PlanError if no sink was added.

        If the job cannot start, the next run has the same sinks. The options of `headgate run` override `resume` and
        `allow_duplicates`.
        """
        if not self.pending:
            raise PlanError(_NO_SINK)
        allow_duplicates = allow_duplicates or bool(os.environ.get(ALLOW_DUPLICATES))
        job = self._submit(self.pending, name, os.environ.get(RESUME) or resume, allow_duplicates)
        self._last_run, self.pending = self.pending, []
        return job

    def planned(self, sinks: list[int]) -> StreamGraph:
        """Return the graph of these sinks. Raises PlanError if a sink by key may not get the last row of a key as the
        last one."""
        graph = self.graph.graph(sinks)
        for node in graph.nodes:
            if node.sink is not None and node.sink.upsert_key is not None:
                from headgate.api.upsert_keys import check_order  # few jobs have such a sink

                check_order(self.graph, node, node.sink.upsert_key)
        return graph

    def explain(self) -> str:
        """Return the plan of the next run as text. If the next run has no sinks, return the plan of the last run."""
        sinks = self.pending or self._last_run
        if not sinks:
            raise PlanError(_NO_SINK)
        return describe(with_used_columns(build_job_graph(self.planned(sinks))))

    def collect(self, rows: PlannedRows, limit: int | None) -> pa.Table:
        """Run a job that computes these rows, and return the rows.

        Without a limit, the job also runs the pending sinks, which were added since the last run. With a limit, the job
        computes only these rows, and the call returns at most `limit` rows.
        """
        collected = CollectSink(limit)
        sink = self._sink_node(rows, collected)
        if limit is not None:
            check_final_rows("collect()", self.planned([sink]))
            return wait_for_rows(self._submit([sink], "collect"), collected)
        self._run_to_the_end(sink, "collect")
        return collected.to_table()

    def to_dataframe(self, rows: PlannedRows) -> Any:
        """Run a job that writes these rows to files, and return a Spark DataFrame over the files."""
        if self._spark is None:
            raise PlanError("to_dataframe() needs Spark: StreamEnvironment(spark); without Spark use collect()")
        from headgate.spark.dataframe import read_folder, spark_columns, spill_folder

        rows.check_append_only("to_dataframe")
        columns = spark_columns("to_dataframe", rows.schema)
        folder = spill_folder(self._spark, self.config.spill_dir)
        sink = self._sink_node(rows, parquet(folder))
        self._run_to_the_end(sink, "to_dataframe")
        return read_folder(self._spark, folder, columns)

    def readable(self, table: Any) -> Any:
        """Return a lookup table in a form that every subtask can read.

        A Spark DataFrame becomes files. A frame of pandas or polars becomes an Arrow table. Other tables stay as they
        are.
        """
        if is_frame(table):
            return as_table(table, "lookup: the frame")
        if not type(table).__module__.startswith("pyspark."):
            return table
        from headgate.spark.dataframe import spill

        return spill(table, self.config.spill_dir)

    def _sink_node(self, rows: PlannedRows, sink: Sink) -> int:
        return self.graph.add(
            default_name(sink),
            rows.inputs,
            parallelism=rows.parallelism_below(),
            schema=rows.schema,
            sink=sink,
            attributes={"kind": "sink"},
        )

    def _run_to_the_end(self, sink: int, name: str) -> None:
        """Run `sink` and all sinks that were added since the last run."""
        check_ends(f"{name}()", self.planned([*self.pending, sink]))
        self.pending.append(sink)
        try:
            job = self.start(name, None, False)
        except BaseException:
            self.pending.remove(sink)
            raise
        finish(job)

    def _submit(
        self, sinks: list[int], name: str, resume: str | None = None, allow_duplicates: bool = False
    ) -> JobHandle:
        from headgate.runtime.master.job import submit  # imported while the TaskManagers' processes start

        graph = self.planned(sinks)
        if self.config.is_batch:
            check_batch(graph)
        if self.config.checkpoint_dir is None:
            check_end_sinks(graph)
        name = check_label("the job's name", name)
        check_overwrites(graph, name, self.config.checkpoint_dir, resume)
        warn_of_final_rows(graph)
        deployment = self._deployed()
        if deployment.copies_functions:
            warn_of_lost_changes(graph)
        return submit(
            graph, name, config=self.config, deployment=deployment, resume=resume, allow_duplicates=allow_duplicates
        )

    def _deployed(self) -> Deployment:
        if self._deployment is None:
            from headgate.spark.spark_deployment import SparkDeployment

            self._deployment = SparkDeployment(self._spark)
        return self._deployment


def default_name(connector: Source | Sink) -> str:
    """Return the default name of the node of a source or sink: the words of its class's name, without the last word.

    For most connectors, this is the name of the function in `hg.sources` or `hg.sinks`. For example, a ForEachBatchSink
    is `for_each_batch`, and `hg.sources.files` gives `watched`. Two kinds have other names: a file sink has the name of
    its format, such as `csv`, and a source of an iterable is `iterable`.
    """
    if isinstance(connector, FileSink):
        return connector.format_name
    if isinstance(connector, (ListSource, FactorySource)):
        return "iterable"
    words = re.findall("[A-Z][a-z0-9]*", type(connector).__name__)
    return "_".join(words[:-1] or words).lower()
