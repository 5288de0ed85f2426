"""A source of the rows of a Spark DataFrame. When the job starts, a Spark job writes the rows to files."""

from __future__ import annotations

import threading
from collections.abc import Collection
from copy import copy
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headgate.config import Config
from headgate.connectors.connector import ReaderContext, Source, SourceReader
from headgate.connectors.file_sources.parquet_source import (
    RowGroups,
    pack_row_groups,
    read_footer,
    read_row_groups,
    schema_with_dictionaries,
)
from headgate.connectors.file_sources.paths import expand
from headgate.connectors.file_sources.splits import SplitReader
from headgate.connectors.share import share_shape
from headgate.errors import ConfigError, HeadgateError, SourceError
from headgate.filesystems import brief
from headgate.spark.dataframe import remove_folder, spill_folder
from headgate.spark.older_spark import to_arrow_schema
from headgate.state import shapes

_BATCH_ROWS = 16_384
_SPLIT_SIZE = 64 << 20


class DataFrameSource(Source):
    """A source of the rows of a Spark DataFrame; see `headgate.api.sources.dataframe`.

    Jobs that run at the same time share the files. A job that restarts continues to read the same files. No other job
    can resume from a checkpoint of a job with this source.
    """

    resumable = False

    def __init__(self, df: DataFrame) -> None:
        if not isinstance(df, DataFrame):
            library = type(df).__module__.partition(".")[0]
            kind = type(df).__name__ if library == "builtins" else f"{type(df).__name__} of {library}"
            raise ConfigError(f"dataframe: a {kind} is not a Spark DataFrame; for a table use iterable")
        if df.isStreaming:
            raise ConfigError(
                "dataframe: a streaming DataFrame has no end, but its rows are written before the job starts; read its "
                "input with another source of hg.sources, or use spark.read instead of spark.readStream"
            )
        try:
            self.schema: pa.Schema = to_arrow_schema(df.schema)
        except Exception as error:  # the classes of PySpark's errors differ by version
            raise ConfigError(
                f"dataframe: its columns have no Arrow types: {brief(error)}; cast or drop them"
            ) from None
        self._rows = _WrittenRows(df)
        #: The columns whose values the job needs.
        self._needed = self.schema.names

    def configure(self, config: Config) -> None:
        """Remember the option `spill_dir`."""
        self._rows.spill_dir = config.spill_dir

    def prepare(self) -> None:
        """Write the rows, unless another running job has already written them.

        Raises SourceError with Spark's message, and ConfigError if executors cannot reach the folder.
        """
        self._rows.acquire()

    def prepared(self) -> Any:
        """Return the folder, which does not outlive this program."""
        return self._rows.folder

    def restore(self, prepared: Any) -> None:
        """Raise SourceError: Spark may compute other rows, or the same rows in another order."""
        raise SourceError(
            "dataframe: its rows are kept only as long as the program that made the checkpoint runs; "
            "write them to files, and read these with hg.sources.parquet"
        )

    def check_position(self, position: Any) -> None:
        """Raise ValueError if no reader of this source can have returned `position`."""
        share_shape(shapes.count)(position, "the position")

    def release(self) -> None:
        """Remove the rows when no job uses them any more."""
        self._rows.release()

    def reading(self, columns: Collection[str]) -> DataFrameSource:
        """Return a source that reads only these columns from the files. All other columns are null."""
        other = copy(self)  # it shares the rows
        other._needed = [name for name in self.schema.names if name in columns]
        return other

    def with_dictionaries(self, columns: Collection[str]) -> DataFrameSource:
        """Return a source that gives these columns of texts with the dictionaries of the files."""
        other = copy(self)
        other.schema = schema_with_dictionaries(self.schema, columns)
        return other

    def reader(self, context: ReaderContext) -> SourceReader:
        """Return a reader of this subtask's splits."""
        read = partial(read_row_groups, schema=self.schema, batch_rows=_BATCH_ROWS, needed=self._needed)
        return SplitReader(self._rows.splits, read, context)


class _WrittenRows:
    """The files with the rows of a DataFrame, which several jobs share. The first job writes them; the last one removes
    them.

    `_lock` protects the folder and the number of jobs that use it. A thread holds the lock while it writes the rows.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self.spill_dir: str | None = None
        self.splits: list[RowGroups] = []
        self.folder = ""
        self._jobs = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields that readers need in the tasks, for pickling."""
        return {"splits": self.splits}

    def acquire(self) -> None:
        """Write the rows for a job, unless another running job has already written them."""
        with self._lock:
            if not self._jobs:
                self._write()
            self._jobs += 1

    def release(self) -> None:
        """Remove the rows if no other job uses them."""
        with self._lock:
            self._jobs -= 1
            if not self._jobs:
                remove_folder(self.folder)

    def _write(self) -> None:
        """Write the rows to a new folder, and divide the folder's files into splits."""
        self.folder = spill_folder(self._df.sparkSession, self.spill_dir)
        try:
            self._df.write.mode("append").parquet(self.folder)
            files = expand([self.folder])
            self.splits = [
                split for file in files for split in pack_row_groups(file, read_footer(file)[1], _SPLIT_SIZE)
            ]
        except BaseException as error:
            remove_folder(self.folder)
            if isinstance(error, HeadgateError) or not isinstance(error, Exception):
                raise
            raise SourceError(f"the DataFrame could not be written to {self.folder}: {brief(error)}") from error
