"""The file formats that file sinks write."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from headgate.errors import PlanError


class UnfitRowsError(ValueError):
    """Rows have a value that a file of this format would lose. The message says what to do."""


class TableWriter(Protocol):
    """A writer of tables, such as those of Arrow. `close` writes the end of the file, and leaves the stream open."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class FileFormat(Protocol):
    """A file format, which makes a writer for each file. `extension` has no dot."""

    extension: str

    def open(self, stream: Any, schema: pa.Schema) -> TableWriter:
        """Return a writer that writes to the stream. Raises pa.ArrowInvalid for a schema that the format cannot
        hold."""
        ...


class ParquetFormat:
    """The Parquet format, with one row group per table. It is compressed with Snappy, which every reader knows."""

    extension = "parquet"

    def open(self, stream: Any, schema: pa.Schema) -> TableWriter:
        if pa.binary(0) in schema.types:
            raise pa.ArrowInvalid("Parquet has no values of 0 bytes")  # Arrow would raise only at the first row
        writer: TableWriter = pq.ParquetWriter(stream, schema, compression="snappy")
        return writer


class CsvFormat:
    """The CSV format, with a header. Texts are in quotes and nulls are empty, so an empty text and null differ."""

    extension = "csv"

    def open(self, stream: Any, schema: pa.Schema) -> TableWriter:
        if any("\n" in name or "\r" in name for name in schema.names):
            raise pa.ArrowInvalid("a column's name has a line break")
        writer: TableWriter = csv.CSVWriter(stream, schema)
        return _OneColumnWriter(writer) if len(schema) == 1 else writer


class _OneColumnWriter:
    """A writer of CSV files with one column. Their nulls would be empty lines, which readers skip."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer

    def write_table(self, table: pa.Table) -> None:
        if table.column(0).null_count:
            raise UnfitRowsError(
                f"{table.column_names[0]!r} is the only column of the file, and has a null, which would be an empty "
                "line: readers skip it. Add a column, fill or filter the nulls, or write Parquet or JSON"
            )
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


def check_writable(format_: FileFormat, schema: pa.Schema) -> None:
    """Check that the format can hold each column. Raises PlanError, which names the wrong column and its type."""
    for field in schema:
        column_schema = pa.schema([field])
        try:
            writer = format_.open(pa.BufferOutputStream(), column_schema)
            writer.write_table(pa.Table.from_batches([], column_schema))
            writer.close()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PlanError(
                f"column {field.name!r} is {field.type}, which {format_.extension} files cannot hold ({error}); "
                "convert it or leave it out with select"
            ) from error
