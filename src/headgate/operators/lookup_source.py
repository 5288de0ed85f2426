"""Loads dimension tables from a pyarrow Table, a file, or any other `TableSource`.

The driver reads the table's schema before the job runs. Each subtask loads the table's rows.
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
    """A picklable source of a dimension table, with the table's schema. `str(source)` names the table in errors."""

    @property
    def schema(self) -> pa.Schema: ...

    def __call__(self) -> pa.Table:
        """Load the table. Each subtask calls this when it opens, and again at each refresh."""


@dataclass(frozen=True)
class InMemoryTable:
    """A table in memory, which the driver sends to the tasks with the job."""

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
    """A parquet or CSV file at an absolute path that every subtask can read. A CSV file has a header; its types are
    inferred."""

    path: Path
    schema: pa.Schema

    def __call__(self) -> pa.Table:
        """Read the file. Raises SourceError if the file is missing, or if its columns changed after the job was
        planned."""
        table = _read(self.path)
        if not table.schema.equals(self.schema):
            raise SourceError(
                f"lookup table {self.path}: its columns changed after the job was written; start it again"
            )
        return table

    def __str__(self) -> str:
        return f"lookup table {self.path}"


def lookup_source(table: object) -> TableSource:
    """Return a picklable source for the dimension table that a user passed. Relative paths start at the driver's
    working directory.

    Raises SourceError for a file that is missing or unreadable, and PlanError for an object that is not a table.
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
    # These two modules import slowly, and only lookups in files need them.
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
