"""The subtask's part of table sinks: it writes Parquet files that belong to no table until a commit adds them."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headgate.connectors.file_sinks.file_writer import FileWriter, Target, writing
from headgate.connectors.file_sinks.partition_by import divided
from headgate.connectors.tables.file_statistics import statistics
from headgate.connectors.tables.iceberg_partitions import IcebergPartition
from headgate.errors import SinkError


class DataFileWriter(FileWriter):
    """A writer whose `flush` returns the finished files: for each its path below the table's root, its size in bytes,
    its statistics, and the `digest` of the table's columns.

    `columns` is the schema of the table. The writer converts rows to it; columns that the rows lack are null.
    `partitions` divide the rows among files that keep all columns. Without them, `partition_by` divides the rows.
    """

    partitions: Sequence[IcebergPartition] = ()
    digest = ""

    def __init__(self, target: Target, columns: pa.Schema, attempt: int, subtask: int) -> None:
        super().__init__(target, attempt, subtask)
        self._columns = columns
        self._files: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        super().write(converted(batch, self._columns, self._target.root))

    def _divided(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not self.partitions:
            return super()._divided(batch)
        values = [partition.values(batch.column(partition.column)) for partition in self.partitions]
        return divided(batch, [partition.name for partition in self.partitions], values, exact=True)

    def flush(self, checkpoint: int) -> Any:
        super().flush(checkpoint)
        files, self._files = self._files, []
        return files or None

    def _end(self, folder: str) -> None:
        name = self._open[folder].name
        super()._end(folder)
        self._files.append({**described(self._target.filesystem, self._target.root, name), "columns": self.digest})


def converted(batch: pa.RecordBatch, columns: pa.Schema, where: str) -> pa.RecordBatch:
    """Return the rows with the columns and types of the table. A column that the rows lack is null.

    `where` is the table's folder, for the error. Raises SinkError for a value that does not fit its column.
    """
    arrays = []
    for column in columns:
        index = batch.schema.get_field_index(column.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, column.type))
            continue
        try:
            arrays.append(batch.column(index).cast(column.type))
        except pa.ArrowException as error:
            raise SinkError(f"{where}: column {column.name!r}: {error}") from None
        if not column.nullable and arrays[-1].null_count:
            raise SinkError(f"{where}: column {column.name!r} has a null, which the table does not allow")
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def described(filesystem: fs.FileSystem, root: str, name: str) -> dict[str, Any]:
    """Return what a commit needs to know about a file, as JSON values."""
    path = posixpath.join(root, name)
    with writing(path):
        size = filesystem.get_file_info(path).size
        return {"path": name, "size": size, "statistics": statistics(pq.read_metadata(path, filesystem=filesystem))}
