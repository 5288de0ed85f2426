"""Staging tables: a subtask's rows of one checkpoint, in the user's database, where no reader looks for them.

A commit moves the rows into the user's table, and drops the staging table, in one transaction. Meanwhile, SQLite lets
no subtask write. PostgreSQL does. There, subtasks look whether the driver commits, and stage only a limited part of the
next checkpoint.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.connectors.adbc.commit_table import CommitTable
from headgate.connectors.adbc.database import LOCKED, Database, DatabaseConnection, database_errors, quoted
from headgate.connectors.connector import SinkWriter, WriterContext
from headgate.connectors.staging_limit import LOOK_INTERVAL, MOST_STAGED
from headgate.errors import SinkError

#: The column with the order in which the rows came.
ORDER: Final = "headgate_row"
_PREFIX: Final = "headgate_stage_"
#: The bytes of rows that a writer collects before it sends them.
_BYTES_HELD: Final = 16 << 20
#: How long `close` waits for a statement that runs, in seconds.
_CLOSE_WAIT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging tables of one run of a sink, in the schema of the user's table or in the default schema (None).

    `owner` is the epoch of the program. Names of tables contain it, so no two programs use the same table.
    """

    schema: str | None
    run: str
    owner: int

    def name(self, attempt: int, subtask: int, number: int) -> str:
        return f"{_PREFIX}{self.run}_{self.owner}_{attempt}_{subtask}_{number}"

    def checked(self, name: Any) -> str:
        """Return a name from a checkpoint. Raises SinkError for a name that no writer of this run made."""
        if not isinstance(name, str) or not re.fullmatch(rf"{_PREFIX}{self.run}(_\d+){{4}}", name):
            raise SinkError(
                f"{name!r} is not a staging table of this sink (run {self.run}); start from another checkpoint"
            )
        return name

    def qualified(self, name: str) -> str:
        """Return a table's name as SQL."""
        return quoted(name) if self.schema is None else f"{quoted(self.schema)}.{quoted(name)}"

    def found(self, connection: DatabaseConnection, database: Database) -> list[str]:
        """Return the names of this run's tables, without those of newer programs."""
        if database.is_postgresql:
            schema = "current_schema()" if self.schema is None else "$1"
            query = f"select tablename from pg_tables where schemaname = {schema} and starts_with(tablename, "
            query += ("$1" if self.schema is None else "$2") + ")"
            values = () if self.schema is None else (self.schema,)
        else:
            query, values = "select name from sqlite_master where type = 'table' and instr(name, $1) = 1", ()
        prefix = f"{_PREFIX}{self.run}_"
        names = [str(name) for (name,) in connection.execute(query, *values, prefix)]
        return [name for name in names if int(name.removeprefix(prefix).split("_")[0]) <= self.owner]

    def drop(self, connection: DatabaseConnection, database: Database) -> int:
        """Drop this run's tables, each in a transaction of its own. Returns how many there were.

        A table in which a paused program still writes is locked, and stays until the next time.
        """
        if database.is_postgresql:
            connection.execute("set lock_timeout = '1s'")
        names = self.found(connection, database)
        connection.commit()
        for name in names:
            try:
                connection.execute(f"drop table if exists {self.qualified(name)}")
                connection.commit()
            except Exception as error:
                connection.roll_back()
                if getattr(error, "sqlstate", None) != LOCKED:
                    raise
        return len(names)


def with_order(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a staging table: those of the rows, and their order."""
    return schema.append(pa.field(ORDER, pa.int64()))


class StagingWriter(SinkWriter):
    """The writer of one subtask: it collects rows, and copies them into a staging table in pieces of about 16 MiB.

    The copying runs on a thread of its own, so that a cancel of the job ends the wait for a slow server.
    """

    def __init__(self, database: Database, staging: Staging, what: str, key: tuple[str, ...],
                 context: WriterContext) -> None:  # fmt: skip
        self._database = database
        self._staging = staging
        self._commits = CommitTable(staging.schema)
        self._what = what
        self._key = key
        self._context = context
        self._schema = context.schema
        self._held: list[pa.RecordBatch] = []
        self._bytes = self._staged = self._rows = self._tables = 0
        #: The staging table of this checkpoint, or None before its first rows.
        self._table: str | None = None
        self._connection: DatabaseConnection | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def write(self, batch: pa.RecordBatch) -> None:
        """Hold a batch. Copy the held rows when they have about 16 MiB."""
        for column in self._key:
            if batch.column(column).null_count:
                raise SinkError(f"{self._what}: a row has no {column!r}, which is a column of key=; fill or filter it")
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _BYTES_HELD:
            self._copy()

    def flush(self, checkpoint: int) -> Any:
        """Copy the held rows to the staging table. Return the table's name, or None if it has no rows."""
        self._copy()
        table, self._table = self._table, None
        self._staged = 0
        return table

    def finish(self) -> Any:
        return self.flush(0)

    def close(self) -> None:
        """Close the connection. If a statement does not end, its thread closes the connection later."""
        self._closed.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(_CLOSE_WAIT)
            if thread.is_alive():
                return
        if self._connection is not None:
            self._connection.close()

    def _copy(self) -> None:
        """Copy the rows that are held into the staging table. Wait if many are there, and the driver is behind."""
        if not self._held:
            return
        if self._staged >= MOST_STAGED and self._database.is_postgresql:
            self._run(self._wait_for_commit)
        self._staged += self._bytes
        rows = pa.Table.from_batches(self._held, self._schema)
        self._held, self._bytes = [], 0
        order = pa.array(np.arange(self._rows, self._rows + rows.num_rows))
        rows = rows.append_column(with_order(self._schema).field(ORDER), order)
        self._rows += rows.num_rows
        is_new = self._table is None
        if self._table is None:
            context = self._context
            self._table = self._staging.name(context.attempt, context.subtask, self._tables)
            self._tables += 1
        table = self._table
        self._run(lambda connection: connection.add(self._staging.schema, table, rows, create=is_new))

    def _wait_for_commit(self, connection: DatabaseConnection) -> None:
        """Wait until the driver has committed the last checkpoint, or the writer is closed."""
        while self._commits.is_locked(connection, self._staging.run) and not self._closed.wait(LOOK_INTERVAL):
            pass

    def _run(self, statement: Callable[[DatabaseConnection], None]) -> None:
        """Run a statement on a thread, and wait for it. Raises SinkError."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                with database_errors(SinkError, self._what):
                    if self._connection is None:
                        self._connection = DatabaseConnection(self._database, autocommit=True)
                    statement(self._connection)
            except BaseException as error:
                errors.append(error)
            if self._closed.is_set() and self._connection is not None:
                self._connection.close()

        name = f"headgate-database-{self._context.operator}[{self._context.subtask}]"
        thread = self._thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._context.wait_until(lambda: not thread.is_alive())
        thread.join()
        self._thread = None
        if errors:
            raise errors[0]
