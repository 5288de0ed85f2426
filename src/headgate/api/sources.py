"""`hg.sources`: the sources of `connectors.built_in_sources`, those that few jobs load, and `dataframe` for Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headgate.connectors.built_in_sources import (
    csv,
    files,
    generate,
    iterable,
    json_lines,
    parquet,
    poll,
    socket_lines,
    text,
)
from headgate.connectors.connector import Source
from headgate.other_names import missing

if TYPE_CHECKING:
    from headgate.connectors.adbc.adbc_functions import source as adbc
    from headgate.connectors.kafka.kafka_functions import source as kafka
    from headgate.connectors.nexmark.nexmark_functions import source as nexmark
    from headgate.connectors.tables.table_functions import delta_source as delta
    from headgate.connectors.tables.table_functions import iceberg_source as iceberg

__all__ = [
    "adbc", "csv", "dataframe", "delta", "files", "generate", "iceberg", "iterable", "json_lines", "kafka", "nexmark",
    "parquet", "poll", "socket_lines", "text",
]  # fmt: skip


def dataframe(df: Any) -> Source:
    """Read the rows of a Spark DataFrame. They never pass through the driver.

    When the job starts, a Spark job writes the rows as Parquet files to a new folder in the option `spill_dir`. All
    executors must reach this path or URI. The subtasks read these files, and the job removes the folder when it ends.

    A restart after a failure therefore continues at the last checkpoint. But no later `execute(resume=...)` can use the
    job's checkpoints and savepoints: it raises SourceError. To resume, write the rows to files, and read the files with
    `hg.sources.parquet`.

    Raises ConfigError for an object that is not a DataFrame, for a streaming DataFrame, and for a column without a type
    in Arrow. The start of the job raises ConfigError if executors cannot reach the folder, and SourceError if the rows
    cannot be written.

    >>> env = hg.StreamEnvironment(spark)
    >>> numbers = env.from_source(hg.sources.dataframe(spark.range(3)))
    >>> numbers.filter("id > 0").collect()["id"].to_pylist()
    [1, 2]
    """
    from headgate.spark.dataframe_source import DataFrameSource

    return DataFrameSource(df)


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # type checkers must report unknown names themselves

    def __getattr__(name: str) -> object:
        if name in ("adbc", "kafka", "nexmark"):  # only jobs with these sources load their modules
            return import_module(f"headgate.connectors.{name}.{name}_functions").source
        if name in ("delta", "iceberg"):
            return getattr(import_module("headgate.connectors.tables.table_functions"), f"{name}_source")
        raise missing("headgate.sources", name)
