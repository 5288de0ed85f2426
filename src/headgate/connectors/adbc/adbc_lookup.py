"""Lookups in a database: one query has all the keys of a call."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headgate.connectors.adbc.adbc_query import AdbcQuery
from headgate.connectors.adbc.database import DatabaseConnection, database_errors, quoted
from headgate.connectors.adbc.null_columns import typed
from headgate.connectors.adbc.postgres_values import refuse_infinity
from headgate.errors import PlanError, SourceError
from headgate.operators.asked_table import AskedTable, OpenedTable
from headgate.records.canonical import value_type

#: The name of the keys in the query. They have columns k1, k2, and so on.
_KEYS = "headgate_keys"


@dataclass(frozen=True, repr=False)
class AdbcTable(AskedTable):
    """A table or a query of a database; see `hg.lookups.adbc`."""

    query: AdbcQuery

    def __str__(self) -> str:
        return self.query.what

    def __repr__(self) -> str:
        return f"lookups.adbc({self.query.database.driver}, {self.query.text!r})"

    def columns(self, keys: pa.Schema, wanted: pa.Schema | None) -> pa.Schema:
        """Check the keys. Return the columns that the lookup adds: `wanted`, or for None all others of the query."""
        found = self.query.columns(may_be_empty=wanted is not None)
        for name in [*keys.names, *(wanted.names if wanted is not None else ())]:
            if name not in found.names:
                raise PlanError(f"{self}: there is no column {name!r}; there are: {', '.join(found.names)}")
        for key in keys:
            self._check_key(key, found.field(key.name))
        if wanted is not None:
            return wanted
        added = pa.schema([pa.field(column.name, column.type) for column in found if column.name not in keys.names])
        self.query.check_types(added)
        return added

    def _check_key(self, key: pa.Field, column: pa.Field) -> None:
        kind, is_number = value_type(key.type), pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if pa.types.is_integer(kind) and kind != pa.uint64():
            fits = not pa.types.is_string(column.type)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            fits = not is_number
        else:
            raise PlanError(f"{self}: on={key.name!r} is {key.type}; a key is a whole number or text: convert it")
        if not fits and self.query.database.is_postgresql:  # SQLite has no types of columns
            raise PlanError(
                f"{self}: column {key.name!r} is {key.type} in the stream and {column.type} in the table; convert one"
            )

    def opened(self, keys: pa.Schema, columns: pa.Schema, timeout: float) -> OpenedTable:
        """Return what one subtask calls. It opens connections when it needs them."""
        database = replace(self.query.database, timeout=timeout)
        return _OpenedTable(AdbcQuery(database, self.query.text), keys, columns)


class _OpenedTable(OpenedTable):
    """Asks the database. It keeps unused connections for later calls; `deque` makes this safe between threads."""

    def __init__(self, query: AdbcQuery, keys: pa.Schema, columns: pa.Schema) -> None:
        super().__init__(query.what)
        self._query = query
        self._keys = keys
        self._columns = columns
        self._statement: str | None = None
        self._free: deque[DatabaseConnection] = deque()
        self._is_closed = False

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        try:
            with database_errors(SourceError, self._query.what):
                found = self._found(keys)
        except BaseException:
            self._close_free()  # one error can mean that all connections are cut
            raise
        refuse_infinity(found, self._query.what)
        places = found.column(_KEYS).cast(pa.int64()).combine_chunks()
        arrays = [keys.column(name).take(places) for name in self._keys.names]
        added = [typed(column, field.type) for column, field in zip(found.columns[1:], self._columns, strict=True)]
        return pa.table([*arrays, *added], names=[*self._keys.names, *self._columns.names])

    def close(self) -> None:
        self._is_closed = True
        self._close_free()

    def _found(self, keys: pa.RecordBatch) -> pa.Table:
        """Return the rows that are found. The first column has the place of each row's key."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = DatabaseConnection(self._query.database, autocommit=True)
        try:
            if self._statement is None:
                self._statement = _statement(self._query, self._keys, self._columns)
            found = connection.query(self._statement, *_parameters(self._query, keys))
        except BaseException:
            connection.close()
            raise
        self._free.append(connection)
        if self._is_closed:
            self._close_free()
        return found

    def _close_free(self) -> None:
        while True:
            try:
                self._free.pop().close()
            except IndexError:
                return


def _statement(query: AdbcQuery, keys: pa.Schema, columns: pa.Schema) -> str:
    """Return the query that joins the keys with the table. The keys are one parameter for each column in PostgreSQL,
    and one JSON text in SQLite."""
    if query.database.is_postgresql:
        types = _text_types(query, keys)
        arrays = ", ".join(f"${number}" for number in range(1, len(keys) + 1))
        names = ", ".join(f"k{number}" for number in range(1, len(keys) + 1))
        given = f"unnest({arrays}) with ordinality as {_KEYS}({names}, number)"
        values = [f"cast(k{number} as {type_})" if type_ else f"k{number}" for number, type_ in enumerate(types, 1)]
        place = f"{_KEYS}.number - 1"
    else:
        given = f"json_each($1) as {_KEYS}"
        values = [f"json_extract({_KEYS}.value, '$[{number}]')" for number in range(len(keys))]
        place = f"{_KEYS}.key"
    equal = " and ".join(f"found.{quoted(name)} = {value}" for name, value in zip(keys.names, values, strict=True))
    added = ", ".join(f"found.{quoted(name)}" for name in columns.names)
    return f"select {place} as {_KEYS}, {added} from {given} join {query.sql} as found on {equal}"


def _text_types(query: AdbcQuery, keys: pa.Schema) -> list[str]:
    """Return the SQL type to which each key is converted, or "" for none, so that an index on such a column is used."""
    found = query.columns(may_be_empty=True)
    metadata = [found.field(key.name).metadata or {} for key in keys]
    types = [each.get(b"POSTGRESQL:type", b"").decode() for each in metadata]
    return ["" if pa.types.is_integer(key.type) else type_ for key, type_ in zip(keys, types, strict=True)]


def _parameters(query: AdbcQuery, keys: pa.RecordBatch) -> list[Any]:
    columns = [column.cast(pa.int64() if pa.types.is_integer(column.type) else pa.string()) for column in keys.columns]
    values = [column.to_pylist() for column in columns]
    return values if query.database.is_postgresql else [json.dumps(list(zip(*values, strict=True)))]
