"""`hg.sources`: the sources of `connectors.built_in_sources`, and DataFrames, which need Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.connectors.built_in_sources import csv, files, generate, iterable, json_lines, parquet, socket_lines, text
from headgate.connectors.connector import Source
from headgate.other_names import missing

__all__ = [
    "csv", "dataframe", "files", "generate", "iterable", "json_lines", "parquet", "socket_lines", "text",
]  # fmt: skip


def dataframe(df: Any) -> Source:
    """The rows of a Spark DataFrame, which never pass through the driver.

    When a job starts, an ordinary Spark job writes them as Parquet files to a new folder in the option `spill_dir` (a
    path or URI that all executors reach), from where the subtasks read them; the folder is removed when the job has
    ended. So a job that starts again by itself reads on where it was; but no other job resumes from its checkpoints
    and savepoints (`resume=` is a SourceError), after a stop or when the program was lost: for that, write the rows to
    files, and read these with `parquet`. Raises ConfigError for what is no DataFrame, or where there is no such folder.
    """
    from headgate.spark.dataframe_source import DataFrameSource

    return DataFrameSource(df)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers are to report such names themselves

    def __getattr__(name: str) -> object:
        raise missing("headgate.sources", name)
