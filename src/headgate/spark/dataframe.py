"""Between Spark DataFrames and our tasks: parquet files in a folder that all executors reach.

Rows never pass through the driver: whoever has them writes files, whoever needs them reads files.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import tempfile
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headgate.errors import ConfigError, DataError, PlanError
from headgate.filesystems import brief, locate, make_private
from headgate.spark.older_spark import to_arrow_schema
from headgate.spark.scratch import ROWS, hold, remove_abandoned, unlock
from headgate.spark.session import context_of, is_local


def spill_folder(spark: SparkSession, spill_dir: str | None) -> str:
    """The path of a new folder for rows on their way, removed when the session or this process ends. On a local disk it
    is there, for its owner alone; Spark appends to it. Raises ConfigError as `new_folder` does."""
    folder = new_folder(spark, spill_dir)
    if (place := local_place(folder)) is not None:
        make_private(pa.fs.LocalFileSystem(), str(place))
        hold(place)
    weakref.finalize(spark.sparkContext, remove_folder, folder)
    return folder


def new_folder(spark: SparkSession, spill_dir: str | None) -> str:
    """The path of a folder that is not there yet. Beside it those of killed programs are removed. Raises ConfigError
    when executors on other machines could not reach it."""
    context = context_of(spark)
    if spill_dir is None:
        if not is_local(context):
            raise ConfigError(
                f"executors of {context.master} may not see this machine's temporary folder; "
                "set the option spill_dir to a folder or URI that all of them reach"
            )
        spill_dir = tempfile.gettempdir()
    if (place := local_place(spill_dir)) is not None:
        remove_abandoned(ROWS, place)
    return posixpath.join(spill_dir, f"headgate-rows-{uuid.uuid4().hex[:12]}")


def is_ours(folder: str) -> bool:
    """Whether it has a name that `new_folder` gives."""
    return fnmatchcase(posixpath.basename(folder), ROWS)


def local_place(folder: str) -> Path | None:
    """Where a folder on a local or mounted disk is; None for one elsewhere."""
    filesystem, inside = locate(folder)
    return Path(inside) if isinstance(filesystem, pa.fs.LocalFileSystem) else None


def read_folder(spark: SparkSession, folder: str, columns: StructType) -> DataFrame:
    """The rows of the parquet files in `folder`, which may have none."""
    return read_files(spark, [folder], columns)


def read_files(spark: SparkSession, paths: Sequence[str], columns: StructType) -> DataFrame:
    """The rows of files or folders that Arrow has written: in the calendar that Spark 4 expects and Spark 3.5, for
    dates before 1900, has to be told of."""
    return spark.read.schema(columns).option("datetimeRebaseMode", "CORRECTED").parquet(*paths)


def spark_columns(where: str, schema: pa.Schema) -> StructType:
    """What Spark makes of Parquet files of this schema. Raises PlanError for a column that it would not read, or not
    as it was."""
    for field in schema:
        why = "" if _TIMES.search(str(field.type)) is None else "it knows no such unit or width"
        try:
            from_arrow_schema(pa.schema([field]))
        except Exception as error:  # PySpark's own kinds, which differ by version
            why = brief(error)
        if why:
            raise PlanError(
                f"{where}: column {field.name!r} is {field.type}, which Spark cannot read from Parquet ({why}); "
                "convert it, for example to timestamp[us], or leave it out with select"
            )
    return from_arrow_schema(schema)


#: Units of time that Spark's Parquet reader refuses or mistakes, and types that it has only by name.
_TIMES = re.compile(r"\b(timestamp\[ns|duration\[(s|ms|ns)\]|time(32|64)\[|decimal256\()")


@dataclass(frozen=True, slots=True)
class SpilledTable:
    """A DataFrame's rows in files. Calling it, in any process, reads them all."""

    folder: str
    schema: pa.Schema

    def __str__(self) -> str:
        return "the lookup DataFrame"

    def __call__(self) -> pa.Table:
        filesystem, path = pa.fs.FileSystem.from_uri(self.folder)
        # Spark writes timestamps as INT96, which Arrow would read as nanoseconds: years beyond 2262 overflow.
        reading = pa.dataset.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        table = pa.dataset.dataset(path, filesystem=filesystem, format=reading).to_table()
        try:
            return table.select(self.schema.names).cast(self.schema)
        except (KeyError, pa.ArrowInvalid) as error:
            raise DataError(f"the rows of a DataFrame in {self.folder} do not have its schema: {error}") from None


def spill(dataframe: DataFrame, spill_dir: str | None) -> SpilledTable:
    """Write a DataFrame's rows to files, by an ordinary Spark job. Raises ConfigError as `spill_folder` does."""
    folder = spill_folder(dataframe.sparkSession, spill_dir)
    dataframe.write.mode("append").parquet(folder)
    return SpilledTable(folder, to_arrow_schema(dataframe.schema))


def remove_folder(folder: str) -> None:
    filesystem, path = pa.fs.FileSystem.from_uri(folder)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)
    if (place := local_place(folder)) is not None:
        unlock(place)
