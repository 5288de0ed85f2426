"""`StreamEnvironment`: where a plan starts and where it is run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headgate.api.builder import Upstream
from headgate.api.checks import check_parallelism, check_schema
from headgate.api.job_builder import JobBuilder, default_name
from headgate.api.planned_rows import PlannedRows
from headgate.api.results import finish
from headgate.api.stream import DataStream
from headgate.api.watermark import Watermark
from headgate.config import Config
from headgate.connectors.connector import Source
from headgate.connectors.frames import is_frame
from headgate.errors import ConfigError, PlanError
from headgate.other_names import OtherNames
from headgate.plan.graph import EventTime, Side
from headgate.runtime.deployment import Deployment
from headgate.runtime.launch.local import LocalDeployment

if TYPE_CHECKING:
    from headgate.runtime.master.job import JobHandle, JobResult


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
        if deployment is None and spark is None:
            deployment = LocalDeployment()
        if deployment is not None:
            deployment.warm_up()
        self._jobs = JobBuilder(self.config, self.parallelism, spark, deployment)

    def from_source(self, source: Source, *, watermark: Watermark | None = None) -> DataStream:
        """A stream of what a source of `hg.sources` reads. Windows need a `watermark`."""
        if not isinstance(source, Source):
            raise PlanError(f"from_source: a {type(source).__name__} is not a source; {_source_of(source)}")
        if watermark is not None and not isinstance(watermark, Watermark):
            raise PlanError(f"from_source: watermark must be a hg.Watermark, not {watermark!r}")
        source.configure(self.config)
        schema = check_schema("from_source", source.schema)
        event_time = None if watermark is None else EventTime(watermark.column)
        graph = self._jobs.graph
        node_id = graph.add(
            default_name(source),
            parallelism=self.parallelism,
            schema=schema,
            source=source,
            sides={tag: Side(schema) for tag, schema in source.sides.items()},
            watermark=None if watermark is None else watermark.spec(schema),
            event_time=event_time,
            attributes={"kind": "source"},
        )
        return DataStream(self._jobs, PlannedRows(graph, (Upstream(node_id),), schema, event_time))

    def execute(self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False) -> JobResult:
        """Run what was added since the last run and wait for its end. Raises the job's error.

        `resume` is a checkpoint to resume from: its path or URI, or "latest" of those that a job of this name has in
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
        return self._jobs.start(name, resume, allow_duplicates)

    def explain(self) -> None:
        """Print the plan of the next run, or else of the last: chains of operators, exchanges, parallelism."""
        print(self._jobs.explain())


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
