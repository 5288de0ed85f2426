"""Where a dimension table comes from: a pyarrow Table, a file, or whatever else knows its schema and can be called.

The schema is known on the driver, before anything runs; the rows are loaded in each subtask.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from headgate.errors import PlanError, SourceError


@runtime_checkable
class TableSource(Protocol):
    """Called in each subtask, once; picklable. `str()` of it names the table in errors."""

    @property
    def schema(self) -> pa.Schema: ...

    def __call__(self) -> pa.Table: ...


@dataclass(frozen=True)
class InMemoryTable:
    """A table that travels with the job."""

    table: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    def __call__(self) -> pa.Table:
        return self.table

    def __str__(self) -> str:
        return "the lookup table"


@dataclass(frozen=True)
class TableFile:
    """A parquet or CSV file (with a header; types are inferred), at an absolute path that every subtask can read."""

    path: Path
    schema: pa.Schema

    def __call__(self) -> pa.Table:
        """Raises SourceError when the file is gone, or no longer what the job was planned with."""
        table = _read(self.path)
        if not table.schema.equals(self.schema):
            raise SourceError(
                f"lookup table {self.path}: its columns changed after the job was written; start it again"
            )
        return table

    def __str__(self) -> str:
        return f"lookup table {self.path}"


def lookup_source(table: object) -> TableSource:
    """What the user gave as a dimension table, ready to travel; relative paths are the driver's.

    Raises SourceError for a file that is missing or cannot be read, PlanError for what is no table.
    """
    if isinstance(table, pa.Table):
        return InMemoryTable(table)
    if isinstance(table, str | os.PathLike):
        path = Path(os.path.abspath(os.path.expanduser(os.fspath(table))))
        return TableFile(path, _read_schema(path))
    if isinstance(table, TableSource) and isinstance(table.schema, pa.Schema):
        return table
    raise PlanError(
        f"lookup takes a pyarrow Table, a frame, a path that ends in .parquet or .csv, or a Spark DataFrame, "
        f"not {type(table).__name__}"
    )


def _read_schema(path: Path) -> pa.Schema:
    if path.suffix == ".parquet" and path.is_file():
        from pyarrow import parquet

        try:
            return parquet.read_schema(path).remove_metadata()
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"lookup table {path} cannot be read: {error}") from None
    return _read(path).schema


def _read(path: Path) -> pa.Table:
    # These two import slowly, and only those who look up files need them.
    from pyarrow import csv, parquet

    if path.suffix not in (".parquet", ".csv"):
        raise PlanError(f"lookup table {path}: the name must end in .parquet or .csv; for others, give a pyarrow Table")
    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    except FileNotFoundError:
        raise SourceError(f"lookup table {path} does not exist") from None
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"lookup table {path} cannot be read: {error}") from None
    return table.replace_schema_metadata(None)
