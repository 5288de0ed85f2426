"""`hg.sinks`: those of `connectors.built_in_sinks`, and a function that takes DataFrames, which needs Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.connectors.built_in_sinks import collect, csv, for_each_batch, null, parquet, printer
from headgate.connectors.connector import Sink
from headgate.operators.operator import check_function
from headgate.other_names import missing

__all__ = ["collect", "csv", "for_each_batch", "foreach_dataframe", "null", "parquet", "printer"]


def foreach_dataframe(fn: Callable[[Any, int], object] | Callable[[Any, int, str], object]) -> Sink:
    """`fn(spark_df, checkpoint_id)` is called on the driver for each checkpoint, with the rows since the one before:
    the way to Delta, Iceberg, JDBC. Without checkpoints it is called once, with all rows and 0, when the job ends.

    `fn(spark_df, checkpoint_id, run)` is also given the run that took the checkpoint, a text that is another one for
    each program that starts or resumes the job ("" without checkpoints). Two programs may give their checkpoints the
    same number, when one was paused and replaced: run and number together name the rows. The run goes to a third
    parameter that has no default, or is called `run`.

    Rows never pass through the driver: the subtasks write them as Parquet files to a new folder in the option
    `spill_dir` (a path or URI that all executors reach), and `spark_df` reads these. It is good for Spark jobs within
    the call only, for its files are removed when `fn` returns. There is no call for a checkpoint without rows.

    Every row is in one call, unless the job starts again or is resumed before it is known that `fn` has returned: then
    `fn` is called again with the same run, number and rows, and must make them count once, as with
    Spark's `foreachBatch`. Calls are one after the other; the tasks go on meanwhile, the next checkpoint waits. What
    `fn` raises is a UserFunctionError, after which the job starts again or fails as for any other.

    Spark jobs of `fn` need a task slot beside those that the job's tasks hold: NotEnoughSlots if there is none.
    Raises PlanError in an environment without Spark, and for columns that Spark has no type for.
    """
    from headgate.spark.dataframe_sink import ForeachDataframeSink

    check_function("foreach_dataframe", fn)
    return ForeachDataframeSink(fn)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers are to report such names themselves

    def __getattr__(name: str) -> object:
        raise missing("headgate.sinks", name)
