"""Moves rows between Spark DataFrames and tasks, by Parquet files in a folder that all executors reach.

Rows never pass through the driver. The side that has the rows writes files, and the other side reads the files.
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
    """Return the path of a new folder for rows, which is removed when the session or this process ends.

    On a local disk this function makes the folder, so that only its owner can read it. Elsewhere Spark makes the folder
    when it writes rows. Raises ConfigError as `new_folder` does.
    """
    folder = new_folder(spark, spill_dir)
    if (place := local_place(folder)) is not None:
        make_private(pa.fs.LocalFileSystem(), str(place))
        hold(place)
    weakref.finalize(spark.sparkContext, remove_folder, folder)
    return folder


def new_folder(spark: SparkSession, spill_dir: str | None) -> str:
    """Return a new path for a folder, and remove the folders that killed programs left beside it.

    Raises ConfigError if executors on other machines could not reach the folder.
    """
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
    """Return whether the folder has a name that `new_folder` gives."""
    return fnmatchcase(posixpath.basename(folder), ROWS)


def local_place(folder: str) -> Path | None:
    """Return the path of a folder on a local or mounted disk; None for a folder elsewhere."""
    filesystem, inside = locate(folder)
    return Path(inside) if isinstance(filesystem, pa.fs.LocalFileSystem) else None


def read_folder(spark: SparkSession, folder: str, columns: StructType) -> DataFrame:
    """Return the rows of the Parquet files in `folder`. The folder may have no files."""
    return read_files(spark, [folder], columns)


def read_files(spark: SparkSession, paths: Sequence[str], columns: StructType) -> DataFrame:
    """Return the rows of Parquet files or folders that Arrow has written.

    The option `datetimeRebaseMode` says that dates are in today's calendar. Spark 4 assumes this without the option.
    Spark 3.5 refuses dates before 1900 without the option.
    """
    return spark.read.schema(columns).option("datetimeRebaseMode", "CORRECTED").parquet(*paths)


def spark_columns(call: str, schema: pa.Schema) -> StructType:
    """Return the Spark types with which Spark reads Parquet files of this schema.

    `call` is the name of the user's call, for errors. Raises PlanError for a column that Spark would refuse or misread.
    """
    for field in schema:
        problem = "" if _MISREAD.search(str(field.type)) is None else "Spark has no such unit or width"
        try:
            from_arrow_schema(pa.schema([field]))
        except Exception as error:  # the classes of PySpark's errors differ by version
            problem = brief(error)
        if problem:
            raise PlanError(
                f"{call}: column {field.name!r} is {field.type}, which Spark cannot read from Parquet ({problem}); "
                "convert it, for example to timestamp[us], or leave it out with select"
            )
    return from_arrow_schema(schema)


#: Types that Spark's Parquet reader refuses or misreads, although `from_arrow_schema` accepts them.
_MISREAD = re.compile(r"\b(timestamp\[ns|duration\[(s|ms|ns)\]|time(32|64)\[|decimal256\()")


@dataclass(frozen=True, slots=True)
class SpilledTable:
    """The rows of a DataFrame in files. Call the object, in any process, to read all rows."""

    folder: str
    schema: pa.Schema

    def __str__(self) -> str:
        return "the lookup DataFrame"

    def __call__(self) -> pa.Table:
        filesystem, path = pa.fs.FileSystem.from_uri(self.folder)
        # Spark writes timestamps as INT96. Arrow reads those as nanoseconds by default: years after 2262 overflow.
        parquet = pa.dataset.ParquetFileFormat(coerce_int96_timestamp_unit="us")
        table = pa.dataset.dataset(path, filesystem=filesystem, format=parquet).to_table()
        try:
            return table.select(self.schema.names).cast(self.schema)
        except (KeyError, pa.ArrowInvalid) as error:
            raise DataError(f"the rows of a DataFrame in {self.folder} do not have its schema: {error}") from None


def spill(dataframe: DataFrame, spill_dir: str | None) -> SpilledTable:
    """Write the rows of a DataFrame to files with a Spark job. Raises ConfigError as `spill_folder` does."""
    folder = spill_folder(dataframe.sparkSession, spill_dir)
    dataframe.write.mode("append").parquet(folder)
    return SpilledTable(folder, to_arrow_schema(dataframe.schema))


def remove_folder(folder: str) -> None:
    """Remove a folder and its lock, if it exists."""
    filesystem, path = pa.fs.FileSystem.from_uri(folder)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)
    if (place := local_place(folder)) is not None:
        unlock(place)
