"""`StreamEnvironment`: makes streams, and runs the plan."""

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
from headgate.throttle.mechanism import Mechanism

if TYPE_CHECKING:
    from headgate.runtime.master.job import JobHandle, JobResult


class StreamEnvironment(OtherNames):
    """The start of every program: it makes streams from sources, and runs jobs.

    `StreamEnvironment(spark)` runs jobs as tasks of this Spark session. It never stops the session.
    `StreamEnvironment()` runs jobs in processes of this machine: one process for each slot, up to the number of cores.
    `deployment` chooses another place, for example `hg.LocalDeployment(processes=False)` for threads of this process.
    `parallelism` is the number of subtasks of each operator that has no parallelism of its own. `config` has the
    options of the jobs. A program need not close the environment. Raises PlanError or ConfigError for wrong arguments.

    >>> env = hg.StreamEnvironment(parallelism=2)
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
                "StreamEnvironment: deployment must be hg.LocalDeployment(...) or hg.SparkDeployment(spark), "
                f"not {deployment!r}"
            )
        self.config = config or Config()
        self.parallelism = check_parallelism("StreamEnvironment", parallelism, self.config.max_parallelism)
        if deployment is None and spark is None:
            deployment = LocalDeployment()
        if deployment is not None:
            deployment.warm_up()
        self._jobs = JobBuilder(self.config, self.parallelism, spark, deployment)

    def from_source(
        self, source: Source, *, watermark: Watermark | None = None, throttle: Mechanism | None = None
    ) -> DataStream:
        """Return a stream of the rows that a source of `hg.sources` reads.

        Windows by event time need a `watermark`. `throttle` limits how fast this source reads: `hg.throttle.FixedRate`
        does. Without it, the option `throttle` of `hg.Config` counts. All other throttles limit a whole job, and only
        that option takes them. Raises PlanError for a wrong source, watermark or throttle.

        >>> rows = [{"city": "Rome", "km": 7}, {"city": "Oslo", "km": 3}]
        >>> trips = env.from_source(hg.sources.iterable([rows]))
        >>> trips
        DataStream(city string, km int64)
        """
        if not isinstance(source, Source):
            raise PlanError(f"from_source: a {type(source).__name__} is not a source; {_source_of(source)}")
        if watermark is not None and not isinstance(watermark, Watermark):
            raise PlanError(f"from_source: watermark must be a hg.Watermark, not {watermark!r}")
        if throttle is not None and not isinstance(throttle, Mechanism):
            raise PlanError(f"from_source: throttle must be one of hg.throttle, not {throttle!r}")
        if throttle is not None and throttle.source_policy(0.0) is None:
            raise PlanError(
                f"from_source: throttle={throttle} limits a whole job, not one source: give it as "
                "hg.Config(throttle=...), or limit this source with hg.throttle.FixedRate(rows_per_s)"
            )
        if throttle is not None and self.config.throttle is not None and self.config.throttle.needs_all_sources:
            raise PlanError(
                f"from_source: throttle={throttle} would take the source out of the batches of "
                f"{self.config.throttle}, which wait for every source: leave one of the two out"
            )
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
            throttle=throttle or self.config.throttle,
            event_time=event_time,
            attributes={"kind": "source"},
        )
        return DataStream(self._jobs, PlannedRows(graph, (Upstream(source=node_id),), schema, event_time))

    def execute(self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False) -> JobResult:
        """Run the sinks that were added since the last run, and wait until the job ends. Raises the job's error.

        `name` is the job's name in messages, and the folder of its checkpoints. `resume` is the checkpoint to resume
        from:

        - a path or URI: the checkpoint or savepoint there;
        - "latest": the newest checkpoint or savepoint of a job of this name in `checkpoint_dir`;
        - "latest-if-any": the same as "latest", but the job starts with its first row if there is no checkpoint;
        - None: the job starts with its first row.

        `headgate run --from` overrides `resume`. If a sink has already made rows from after the checkpoint visible,
        `execute` raises CheckpointError. With `allow_duplicates` the job runs, and these rows appear twice. If another
        run has overwritten the rows of the checkpoint, `execute` raises SinkError. A job with an unbounded source ends
        when it fails or when Ctrl-C cancels it.

        A program that starts or resumes a job takes it over. If an older program still runs a job of this name with
        this `checkpoint_dir`, the older program's job ends with Superseded.

        >>> collected = hg.sinks.collect()
        >>> sink = env.from_source(hg.sources.iterable([[{"n": 1}, {"n": 2}]])).sink_to(collected)
        >>> result = env.execute("numbers")
        >>> result.rows_in, collected.to_table()["n"].to_pylist()
        (2, [1, 2])
        """
        return finish(self.execute_async(name, resume, allow_duplicates=allow_duplicates))

    def execute_async(
        self, name: str = "job", resume: str | None = None, *, allow_duplicates: bool = False
    ) -> JobHandle:
        """Start the sinks that were added since the last run, and return without waiting; see `execute`.

        Raises PlanError if no sink was added, and CheckpointError if the job cannot resume from the checkpoint. If the
        job cannot start, the next call starts the same sinks again.

        >>> sink = env.from_source(hg.sources.iterable([[{"n": 1}, {"n": 2}]])).sink_to(hg.sinks.null())
        >>> job = env.execute_async("numbers")
        >>> job.wait().rows_out
        2
        """
        return self._jobs.start(name, resume, allow_duplicates)

    def explain(self) -> None:
        """Print the plan of the next run: its tasks, the number of subtasks of each task, and the exchanges between
        tasks.

        If no sink was added since the last run, print the plan of the last run. `(upserts by n)` means that each row of
        the operator replaces its earlier row with the same `n`; see `changes`.

        >>> numbers = env.from_source(hg.sources.iterable([[{"n": 1}, {"n": 2}]]))
        >>> sink = numbers.key_by("n").aggregate(rows=hg.count()).sink_to(hg.sinks.null())
        >>> env.explain()
        1  iterable                          x2
        2  aggregate (upserts by n) -> null  x2
             from 1: by key group of n
        """
        print(self._jobs.explain())


def _check_session(spark: Any) -> None:
    """Raise PlanError for an object that is not a Spark session, and ConfigError for a session that cannot run a
    job."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(spark).__mro__}
    if not kinds & {"pyspark.sql.session.SparkSession", "pyspark.sql.connect.session.SparkSession"}:
        given = f"a {type(spark).__name__}" if isinstance(spark, Config) else repr(spark)
        raise PlanError(
            f"StreamEnvironment: the first argument is a SparkSession, not {given}; give all other arguments by name: "
            "StreamEnvironment(parallelism=2, config=hg.Config(...))"
        )
    from headgate.spark.session import context_of

    context_of(spark)


def _source_of(given: object) -> str:
    """Return advice for an argument that is not a source."""
    if type(given).__module__.startswith("pyspark."):
        return "for a Spark DataFrame write from_source(hg.sources.dataframe(df))"
    if isinstance(given, (list, tuple, pa.RecordBatch)) or is_frame(given):
        return "write from_source(hg.sources.iterable(...)) for rows, batches or a frame"
    if isinstance(given, (str, os.PathLike)):
        return f"use one of hg.sources: for files hg.sources.csv({os.fspath(given)!r}), or parquet, json_lines, text"
    return "use one of hg.sources, for example hg.sources.iterable([batch])"
