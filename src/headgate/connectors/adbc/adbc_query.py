"""A query that a user gives: the name of a table, or a `select`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headgate.connectors.adbc.database import START_LOCK_WAIT, Database, DatabaseConnection, quoted
from headgate.errors import SourceError


@dataclass(frozen=True, slots=True)
class AdbcQuery:
    """A table or a `select` of a database."""

    database: Database
    text: str

    @property
    def what(self) -> str:
        """The name of the query in errors."""
        return "adbc: the query" if self.is_select else f"adbc: table {self.text}"

    @property
    def sql(self) -> str:
        """What stands after `from`."""
        return f"({self.text.strip().rstrip(';')})" if self.is_select else ".".join(map(quoted, self.text.split(".")))

    @property
    def is_select(self) -> bool:
        return self.text.split()[0].lower() in ("select", "with", "(")

    @contextmanager
    def asked(self) -> Iterator[DatabaseConnection]:
        """Connect before the job, to ask about the query. Raises SourceError."""
        # Each question is a transaction of its own, since others lock an SQLite file.
        connected = self.database.connected(SourceError, self.what, autocommit=True, lock_wait=START_LOCK_WAIT)
        with connected as connection:
            yield connection

    def columns(self, *, may_be_empty: bool) -> pa.Schema:
        """Ask the database for the columns. In PostgreSQL, their metadata has the names of their types.

        SQLite knows the types of values, not of columns; without rows they are not known. Raises SourceError then,
        unless the query `may_be_empty`.
        """
        is_postgresql = self.database.is_postgresql
        rows = "where 1 = 0" if is_postgresql else "limit 100"
        with self.asked() as connection:
            found = connection.query(f"select * from {self.sql} as found {rows}")
        if not found.num_rows and not may_be_empty and not is_postgresql:
            raise SourceError(f"{self.what}: there are no rows, so SQLite does not tell the types; give schema=")
        schema: pa.Schema = found.schema
        return schema

    def check_types(self, columns: pa.Schema) -> None:
        """Raise SourceError for a column that Arrow has no type for."""
        for column in columns:
            if isinstance(column.type, pa.BaseExtensionType):
                name = getattr(column.type, "type_name", column.type.extension_name)
                cast = "double precision" if name == "numeric" else "text"
                raise SourceError(
                    f"{self.what}: column {column.name!r} is {name}, which has no type in Arrow; cast it in a query, "
                    f"such as: select cast({column.name} as {cast}) as {column.name}"
                )
