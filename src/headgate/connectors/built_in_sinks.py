"""The functions of `hg.sinks`, except for `foreach_dataframe`.

File sinks write into a folder that all machines of the job must share. A relative path starts at the driver's working
folder. Until the job has finished, files have hidden names, which begin with `_`. A job that fails or is cancelled
removes its hidden files. With checkpoints, each checkpoint makes visible the files with the rows before it. Visible
files stay even if the job fails later. `mode` takes effect when the job starts: "error" fails if the folder has files,
"append" adds files, "overwrite" empties the folder first. With `partition_by`, rows go to subfolders `column=value`, as
in Hive and Spark. The files then lack these columns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import pyarrow as pa

from headgate.connectors.collect_sink import CollectSink
from headgate.connectors.connector import Sink
from headgate.connectors.file_sinks.file_formats import CsvFormat, ParquetFormat
from headgate.connectors.file_sinks.file_sink import FileSink, Mode
from headgate.connectors.for_each_batch_sink import BatchInfo, ForEachBatchSink
from headgate.connectors.null_sink import NullSink
from headgate.connectors.printer_sink import PrinterSink
from headgate.connectors.two_phase_sink import CommitFunction, TwoPhaseSink, WriteFunction

__all__ = ["collect", "csv", "for_each_batch", "json", "null", "parquet", "printer", "two_phase"]


def parquet(path: str | os.PathLike[str], mode: Mode = "error", partition_by: str | Sequence[str] = (), *,
            target_file_size: int | str = "128 mb") -> FileSink:  # fmt: skip
    """Write Parquet files into the folder `path`. A job without rows leaves one file with the schema.

    Files have hidden names, which begin with `_`, until a checkpoint or the end of the job makes them visible. `mode`
    is "error" (fail if the folder has files), "append" or "overwrite" (empty the folder first). With `partition_by`,
    rows go to subfolders `column=value`, and the files lack these columns. When a file has about `target_file_size`, a
    subtask begins the next one. Every checkpoint ends all files, so short checkpoint intervals make small files.

    `path` may be on S3, where unfinished uploads take the place of hidden names; see docs/how-to/write-files-to-s3.md.

    Raises SinkError for a path that cannot be written, and ConfigError for an unknown mode or size.

    ```python
    import pyarrow.parquet as pq

    env = hg.StreamEnvironment()
    env.from_source(hg.sources.iterable([{"n": 1}, {"n": 2}])).sink_to(hg.sinks.parquet("out"))
    env.execute()
    print(pq.read_table("out").num_rows)  # 2
    ```
    """
    return FileSink(path, ParquetFormat(), mode, partition_by, target_file_size)


def csv(path: str | os.PathLike[str], mode: Mode = "error", partition_by: str | Sequence[str] = (), *,
        target_file_size: int | str = "128 mb") -> FileSink:  # fmt: skip
    """Write CSV files with a header into the folder `path`. Texts are quoted, and a null is an empty value.

    `hg.sources.csv` can read these files if no text has line breaks. The arguments and the errors are the same as for
    `hg.sinks.parquet`.

    ```python
    env = hg.StreamEnvironment()
    rows = [{"day": 1, "n": 5}, {"day": 2, "n": 7}]
    env.from_source(hg.sources.iterable(rows)).sink_to(hg.sinks.csv("days", partition_by="day"))
    env.execute()
    print(env.from_source(hg.sources.csv("days/day=1/")).collect().to_pylist())  # [{'n': 5}]
    ```
    """
    return FileSink(path, CsvFormat(), mode, partition_by, target_file_size)


def json(path: str | os.PathLike[str], mode: Mode = "error", partition_by: str | Sequence[str] = (), *,
         target_file_size: int | str = "128 mb") -> FileSink:  # fmt: skip
    """Write files with one JSON object on each line into the folder `path`.

    Numbers keep all digits, times are ISO 8601, with Z if the column has a zone, and a null is `null`. NaN and infinite
    numbers become null. `hg.sources.json_lines` reads these files. The arguments and the errors are the same as for
    `hg.sinks.parquet`. Binary columns and maps are a PlanError.

    ```python
    env = hg.StreamEnvironment()
    env.from_source(hg.sources.iterable([{"n": 1, "tags": ["a"]}])).sink_to(hg.sinks.json("lines"))
    env.execute()
    print(env.from_source(hg.sources.text("lines")).collect().to_pylist())  # [{'value': '{"n": 1, "tags": ["a"]}'}]
    ```
    """
    from headgate.connectors.file_sinks.json_format import JsonLinesFormat  # only jobs with JSON load it

    return FileSink(path, JsonLinesFormat(), mode, partition_by, target_file_size)


def collect(limit: int | None = None) -> CollectSink:
    """Keep at most `limit` rows in the driver's memory. `to_table()` returns the rows of the last run that have arrived
    so far.

    When a job restarts from a checkpoint, the sink discards the rows after the checkpoint, so it has each row once. If
    another program resumes the job, its sink gets only the rows after the checkpoint.

    ```python
    env = hg.StreamEnvironment()
    rows = hg.sinks.collect()
    env.from_source(hg.sources.iterable([{"n": 1}, {"n": 2}])).sink_to(rows)
    env.execute()
    print(rows.to_table().to_pylist())  # [{'n': 1}, {'n': 2}]
    ```
    """
    return CollectSink(limit)


def printer(prefix: str = "", limit: int | None = None) -> Sink:
    """Print each row as a line on the driver, such as `a=1, b=x`. Each line begins with `prefix`.

    The sink prints at most `limit` lines per run. When a job restarts from a checkpoint, the sink prints the rows after
    the checkpoint again.

    ```python
    env = hg.StreamEnvironment()
    env.from_source(hg.sources.iterable([{"n": 1, "s": "x"}])).sink_to(hg.sinks.printer("row: "))
    env.execute()  # row: n=1, s=x
    ```
    """
    return PrinterSink(prefix, limit)


def for_each_batch(fn: Callable[[pa.RecordBatch, BatchInfo], object]) -> Sink:
    """Call `fn(batch, info)` for each batch, in the process of the task. `info` is an `hg.BatchInfo`: the subtask,
    checkpoint and run of the batch.

    `info.checkpoint_id` is the number of the checkpoint that the batch belongs to. Without checkpoints it is 0. A job
    that restarts from checkpoint n calls `fn` again with the rows after this checkpoint. The rows may be in other
    batches, and `info.checkpoint_id` is above n. `info.run` is a string. It is different for each program that starts
    or resumes the job.

    If `fn` raises, the task fails with a UserFunctionError. If tasks are threads, several subtasks may call `fn` at the
    same time.

    ```python
    def show(batch, info):
        print(batch.to_pylist(), info.subtask)

    env = hg.StreamEnvironment()
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.for_each_batch(show))
    env.execute()  # for_each_batch[0] | [{'n': 1}] 0
    ```
    """
    return ForEachBatchSink(fn)


def two_phase(write: WriteFunction, commit: CommitFunction) -> Sink:
    """Write rows with one function, and make them visible with another when their checkpoint is complete.

    Use it for a sink of your own that needs exactly-once results. `write(table, info)` runs in the tasks. It gets the
    rows of a checkpoint as a pyarrow Table, in pieces of about 64 MiB, and an `hg.BatchInfo`. It writes them where
    nobody sees them yet, for example to a file with a hidden name, and returns JSON values that name them.
    `commit(written, checkpoint)` runs on the driver, once all rows before the checkpoint are written, and makes these
    rows visible. `written` is the list of what `write` returned since the last commit. Without checkpoints there is one
    commit, at the end of the job, and `checkpoint` is 0.

    `commit` may be called again with the same values, also by another program that resumes the job. It must then change
    nothing: rename a file only if it is still there, or store the checkpoint's number in the same transaction. After a
    restart, `write` gets the rows after the checkpoint again. What it wrote for these rows before the restart is never
    committed: remove such leftovers when they are old.

    If a function raises, the job restarts or fails with UserFunctionError.

    ```python
    import json
    import os

    def write(table, info):
        name = f"rows-{info.run}-{info.checkpoint_id}-{info.subtask}.json"
        with open("_" + name, "w") as file:
            json.dump(table.to_pylist(), file)
        return name

    def commit(written, checkpoint):
        for name in written:
            if os.path.exists("_" + name):
                os.rename("_" + name, name)

    env = hg.StreamEnvironment()
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.two_phase(write, commit))
    env.execute()
    print([name for name in os.listdir() if name.startswith("rows-")] != [])  # True
    ```
    """
    return TwoPhaseSink(write, commit)


def null() -> Sink:
    """Drop every row.

    ```python
    env = hg.StreamEnvironment()
    env.from_source(hg.sources.iterable([{"n": 1}])).sink_to(hg.sinks.null())
    env.execute()
    ```
    """
    return NullSink()
