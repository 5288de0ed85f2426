"""The database source: it asks a query again and again for the rows after the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connectors.adbc.adbc_query import AdbcQuery
from headgate.connectors.adbc.database import Database, DatabaseConnection, database_errors, quoted
from headgate.connectors.adbc.null_columns import typed
from headgate.connectors.adbc.postgres_values import refuse_infinity
from headgate.connectors.polled_table import PolledTable
from headgate.errors import SourceError

#: The name of the only split: a query is read by one subtask.
_SPLIT: Final = "rows"
_T = TypeVar("_T")


class AdbcSource(PolledTable["_Poll"]):
    """A source of the rows of a query, in the order of a column; see `hg.sources.adbc`."""

    def __init__(self, database: Database, query: str, by: str, schema: pa.Schema | None, *, start: int | str | None,
                 batch_rows: int, interval: float | str, bounded: bool) -> None:  # fmt: skip
        poll = _Poll(database, query, by, start=start, batch_rows=batch_rows, bounded=bounded)
        poll.schema = schema.remove_metadata() if schema is not None else poll.found_schema()
        super().__init__(poll, poll.schema, _SPLIT, interval=interval, bounded=bounded)

    def prepared(self) -> Any:
        """Return the table, or None for a query, whose text may change; and the column."""
        return {"table": self._poll.table, "by": self._poll.by}

    def restore(self, prepared: Any) -> None:
        """Raise SourceError if the job of the checkpoint read another table, or went by another column.

        A query may take the place of a table, for example to leave out rows, and the other way round.
        """
        before = prepared if isinstance(prepared, dict) else {}
        what, table, by = self._poll.what, before.get("table"), before.get("by")
        if by != self._poll.by:
            raise SourceError(
                f"{what}: the job of the checkpoint reads by={by!r}, and knows its place there, not in "
                f"{self._poll.by!r}; give that, or start without resume"
            )
        if None not in (table, self._poll.table) and table != self._poll.table:
            raise SourceError(
                f"{what}: the job of the checkpoint reads table {table}, and knows its place there; give that, written "
                "in the same way, or start without resume"
            )
        self.prepare()

    def prepare(self) -> None:
        """Check that the query can be read, and that it has the columns of the schema. Raises SourceError."""
        what, by, found = self._poll.what, self._poll.by, self._poll.found_schema()
        if missing := [name for name in self.schema.names if name not in found.names]:
            raise SourceError(f"{what}: there is no column {missing[0]!r}; there are: {', '.join(found.names)}")
        if by not in self.schema.names:
            raise SourceError(f"{what}: by={by!r} must be one of: {', '.join(self.schema.names)}")
        kind = self.schema.field(by).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise SourceError(f"{what}: by={by!r} is {kind}; it must be a whole number or text")
        self._poll.look_for_nulls()

    def check_place(self, place: Any) -> None:
        """Raise ValueError if `place` is neither None nor a possible value of the column `by`."""
        if not isinstance(place, (int, str, type(None))) or isinstance(place, bool):
            raise ValueError(f"the position {place!r} is neither a whole number nor text")


class _Poll:
    """The function that the source asks for rows. Its connection opens at the first call, and again after an error."""

    def __init__(self, database: Database, query: str, by: str, *, start: int | str | None, batch_rows: int,
                 bounded: bool) -> None:  # fmt: skip
        self._query = AdbcQuery(database, query)
        self.what = self._query.what
        self.table = None if self._query.is_select else query
        self.by = by
        self.schema: pa.Schema | None = None
        self._database = database
        self._start = start
        self._batch_rows = batch_rows
        self._bounded = bounded
        self._connection: DatabaseConnection | None = None

    def found_schema(self) -> pa.Schema:
        """Return the columns of the query. Raises SourceError, also for a column that Arrow has no type for."""
        found = self._query.columns(may_be_empty=self.schema is not None)
        self._query.check_types(found)
        return pa.schema([pa.field(column.name, column.type) for column in found])

    def look_for_nulls(self) -> None:
        """Raise SourceError if a row has no value in `by`."""
        with self._query.asked() as connection:
            self._refuse_nulls(connection)

    def _refuse_nulls(self, connection: DatabaseConnection) -> None:
        """Raise SourceError for a row that no query after a value returns."""
        given, by = self._query.sql, quoted(self.by)
        from_ = "..." if self._query.is_select else self._query.text
        if connection.execute(f"select 1 from {given} as found where {by} is null limit 1"):
            raise SourceError(
                f"{self.what}: a row has no value in by={self.by!r}, so the source would never read it. Fill the "
                f"column, or leave out such rows: select ... from {from_} where {self.by} is not null"
            )

    def __call__(self, split: str, position: Any) -> tuple[pa.RecordBatch, Any] | None:
        """Return the rows after a position, and their last position. Returns None at the end of a bounded source."""
        last = self._start if position is None else position
        rows = self._rows(last)
        if not rows.num_rows:
            return None if self._bounded else (rows, last)
        values, has_more = rows.column(self.by), rows.num_rows > self._batch_rows
        if pc.count_distinct(values).as_py() < rows.num_rows or (has_more and self._is_twice(values[-2].as_py())):
            raise SourceError(
                f"{self.what}: the column {self.by!r} has a value twice after {last!r}. It must be unique, because the "
                "source continues after the last value"
            )
        rows = rows.slice(0, self._batch_rows)
        return rows, rows.column(self.by)[-1].as_py()

    def _is_twice(self, value: int | str) -> bool:
        """Return whether a query after a value would leave out a row beside the one with this value.

        The database may take two texts as equal that differ, such as `a` and `A`.
        """
        if isinstance(value, int):
            return False
        query = f"select 1 from {self._query.sql} as found where {quoted(self.by)} = $1 limit 2"
        return len(self._asked(lambda connection: connection.execute(query, value))) > 1

    def _rows(self, last: int | str | None) -> pa.RecordBatch:
        """Return the next rows, and one more, which may have the same value as the row before it."""
        assert self.schema is not None
        by = quoted(self.by)
        after, values = (f"{by} is not null", ()) if last is None else (f"{by} > $1", (last,))
        names, given = quoted(*self.schema.names), self._query.sql
        query = f"select {names} from {given} as found where {after} order by {by} limit {self._batch_rows + 1}"

        def found(connection: DatabaseConnection) -> pa.Table:
            table = connection.query(query, *values)
            if not table.num_rows:
                self._refuse_nulls(connection)
            return table

        table = self._asked(found)
        refuse_infinity(table, self.what)
        columns = [typed(column, field.type) for column, field in zip(table.columns, self.schema, strict=True)]
        try:
            table = pa.table(columns, names=self.schema.names)
            batches = table.cast(self.schema).combine_chunks().to_batches()
        except (pa.ArrowException, ValueError) as error:
            raise SourceError(f"{self.what}: the rows are not of the schema: {error}") from None
        return batches[0] if batches else pa.RecordBatch.from_pylist([], self.schema)

    def _asked(self, ask: Callable[[DatabaseConnection], _T]) -> _T:
        """Return what a function of the open connection returns. After an error, close the connection."""
        try:
            with database_errors(SourceError, self.what):
                if self._connection is None:
                    self._connection = DatabaseConnection(self._database, autocommit=True)
                return ask(self._connection)
        except SourceError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}
