"""`hg.sinks`: the sinks of `connectors.built_in_sinks`, those that few jobs load, and `foreach_dataframe` for Spark."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.connectors.built_in_sinks import collect, csv, for_each_batch, json, null, parquet, printer, two_phase
from headgate.connectors.connector import Sink
from headgate.operators.operator import check_function
from headgate.other_names import missing

if TYPE_CHECKING:
    from headgate.connectors.adbc.adbc_functions import sink as adbc
    from headgate.connectors.kafka.kafka_functions import sink as kafka
    from headgate.connectors.tables.table_functions import delta, iceberg
    from headgate.connectors.webhook.webhook_functions import sink as webhook

__all__ = [
    "adbc", "collect", "csv", "delta", "for_each_batch", "foreach_dataframe", "iceberg", "json", "kafka", "null",
    "parquet", "printer", "two_phase", "webhook",
]  # fmt: skip


def foreach_dataframe(fn: Callable[[Any, int], object] | Callable[[Any, int, str], object]) -> Sink:
    """Call a function with a Spark DataFrame of the rows of each checkpoint, for example to write to Delta, Iceberg or
    JDBC.

    On the driver, the job calls `fn(spark_df, checkpoint_id)` for each checkpoint, with the rows since the previous
    checkpoint. It makes no call for a checkpoint without rows. Without checkpoints, it makes one call when the job
    ends, with all rows and the number 0.

    Rows never pass through the driver. The subtasks write them as Parquet files to a new folder in the option
    `spill_dir`. All executors must reach this path or URI. `spark_df` reads these files. The job removes the files when
    `fn` returns, so use `spark_df` only within the call.

    Each row is in one call, with one exception. If the job restarts or is resumed before it has stored that `fn`
    returned, the job calls `fn` again for the same checkpoint, with the same rows. `fn` must make sure that these rows
    count once, as with `foreachBatch` of Spark. To identify the rows of a call, take a third argument: `fn(spark_df,
    checkpoint_id, run)`. `run` is a string that names the program that took the checkpoint. It is different for each
    program that starts or resumes the job. Without checkpoints, `run` is "". If a program was paused and replaced, the
    two programs may give a checkpoint the same number. So only `run` and `checkpoint_id` together identify the rows.
    The job passes `run` to a third parameter without a default, or to a parameter with the name `run`.

    The job makes one call after the other. The tasks continue during a call, but the next checkpoint waits. If `fn`
    raises, the job restarts or fails with UserFunctionError. Spark jobs of `fn` need one task slot in addition to the
    slots of the job's tasks. Without this slot the job fails with NotEnoughSlots. Raises PlanError in an environment
    without Spark, and for columns that have no type in Spark.

    In this example `folder` is the path of a table that all executors reach:

    >>> def keep(spark_df, checkpoint_id):
    ...     spark_df.write.mode("overwrite").parquet(f"{folder}/checkpoint={checkpoint_id}")
    >>> env = hg.StreamEnvironment(spark)
    >>> sink = env.from_source(hg.sources.iterable([[{"n": 1}]])).sink_to(hg.sinks.foreach_dataframe(keep))
    >>> result = env.execute()
    >>> spark.read.parquet(folder).collect()
    [Row(n=1, checkpoint=0)]
    """
    from headgate.spark.dataframe_sink import ForeachDataframeSink

    check_function("foreach_dataframe", fn)
    return ForeachDataframeSink(fn)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers must report unknown names themselves

    def __getattr__(name: str) -> object:
        if name in ("adbc", "kafka", "webhook"):  # only jobs with these sinks load their modules
            return import_module(f"headgate.connectors.{name}.{name}_functions").sink
        if name in ("delta", "iceberg"):
            return getattr(import_module("headgate.connectors.tables.table_functions"), name)
        raise missing("headgate.sinks", name)
