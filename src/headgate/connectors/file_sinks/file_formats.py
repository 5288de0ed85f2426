"""The formats that file sinks write."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from headgate.errors import PlanError


class TableWriter(Protocol):
    """Arrow's own writers: tables go in, and `close` writes what belongs at the end. The stream stays open."""

    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class FileFormat(Protocol):
    """How one file is written; `extension` has no dot."""

    extension: str

    def open(self, stream: Any, schema: pa.Schema) -> TableWriter: ...


class ParquetFormat:
    """Each table becomes a row group; compressed with Snappy, which every reader knows."""

    extension = "parquet"

    def open(self, stream: Any, schema: pa.Schema) -> TableWriter:
        if pa.binary(0) in schema.types:
            raise pa.ArrowInvalid("Parquet has no values of 0 bytes")  # Arrow finds out with the first row
        writer: TableWriter = pq.ParquetWriter(stream, schema, compression="snappy")
        return writer


class CsvFormat:
    """A header, then rows: texts in quotes, null as nothing at all, so that "" and null stay apart."""

    extension = "csv"

    def open(self, stream: Any, schema: pa.Schema) -> TableWriter:
        if any("\n" in name or "\r" in name for name in schema.names):
            raise pa.ArrowInvalid("a column's name has a line break")
        writer: TableWriter = csv.CSVWriter(stream, schema)
        return writer


def check_writable(format_: FileFormat, schema: pa.Schema) -> None:
    """Raises PlanError that names the column whose type the format does not have."""
    for field in schema:
        one = pa.schema([field])
        try:
            writer = format_.open(pa.BufferOutputStream(), one)
            writer.write_table(one.empty_table())
            writer.close()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PlanError(
                f"column {field.name!r} is {field.type}, which {format_.extension} files cannot hold ({error}); "
                "convert it or leave it out with select"
            ) from error
