"""The sinks: `hg.sinks.parquet("out/")` and so on.

File sinks write into a folder; a relative path is the driver's, and all machines of the job must share it. Files are
hidden, by a name that begins with `_`, until the job has finished; a job that fails or is cancelled leaves none. With
checkpoints each shows the files of the rows before it, and these stay, whatever becomes of the job. `mode` acts when
the job starts: "error" if the folder has files, "append" to add files, "overwrite" to empty it first. With
`partition_by` the rows go to sub-folders `column=value`, as Hive and Spark have them, and the files lack those columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pyarrow as pa

from headgate.connectors.collect_sink import CollectSink
from headgate.connectors.connector import Sink
from headgate.connectors.file_formats import CsvFormat, ParquetFormat
from headgate.connectors.file_sink import FileSink, Mode
from headgate.connectors.for_each_batch_sink import BatchInfo, ForEachBatchSink
from headgate.connectors.null_sink import NullSink
from headgate.connectors.printer_sink import PrinterSink

__all__ = ["collect", "csv", "for_each_batch", "null", "parquet", "printer"]


def parquet(path: str | os.PathLike[str], mode: Mode = "error", partition_by: str | Sequence[str] = ()) -> FileSink:
    """Parquet files of about 128 MB; a job without rows leaves one file with the schema.

    Raises SinkError for a path that cannot be written, ConfigError for an unknown mode.
    """
    return FileSink(path, ParquetFormat(), mode, partition_by)


def csv(path: str | os.PathLike[str], mode: Mode = "error", partition_by: str | Sequence[str] = ()) -> FileSink:
    """CSV files of about 128 MB with a header: texts are quoted, null is nothing at all.

    `hg.sources.csv` reads them back, unless a text has line breaks. Raises as `parquet` does.
    """
    return FileSink(path, CsvFormat(), mode, partition_by)


def collect(limit: int | None = None) -> CollectSink:
    """Rows kept on the driver, at most `limit`: `to_table()` gives them after the job, and those so far before. When a
    job starts again from a checkpoint, those after it are forgotten, so that each is there once. A job that goes on
    from a checkpoint of another has the rows behind it."""
    return CollectSink(limit)


def printer(prefix: str = "", limit: int | None = None) -> Sink:
    """A line per row, `a=1, b=x`, printed on the driver, at most `limit` lines per run; `prefix` begins each. When a
    job starts again from a checkpoint, the rows after it are printed once more."""
    return PrinterSink(prefix, limit)


def for_each_batch(fn: Callable[[pa.RecordBatch, BatchInfo], object]) -> Sink:
    """`fn(batch, info)` is called in the task; `info`, an `hg.BatchInfo`, says in which: `info.subtask`.

    `info.checkpoint_id` is the number of the checkpoint that the batch belongs to, 0 without checkpoints. A job that
    starts again from checkpoint n gives the rows of later ones once more, in other batches, with numbers above n.
    `info.run` is another text for each program that starts or resumes the job.

    Raises UserFunctionError if `fn` does. In a thread deployment several subtasks may call it at once.
    """
    return ForEachBatchSink(fn)


def null() -> Sink:
    """Drops every row."""
    return NullSink()
