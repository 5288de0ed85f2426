"""The driver's part of the database sink: it checks the table, and commits staged rows, each exactly once."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from headgate.connectors.adbc.commit_table import CommitTable
from headgate.connectors.adbc.database import LOCKED, START_LOCK_WAIT, Database, DatabaseConnection, quoted
from headgate.connectors.adbc.lock_holders import lock_holders
from headgate.connectors.adbc.staging import ORDER, Staging, StagingWriter, with_order
from headgate.connectors.connector import Claim, Sink, SinkWriter, WriterContext
from headgate.errors import PlanError, ResultsGone, SinkError

Mode = Literal["append", "error", "upsert"]
_RUN: Final = re.compile("[0-9a-f]{12}")
#: The column that numbers the rows of a key, from the last one on.
_NEWEST: Final = "headgate_newest"
#: The types of a table's columns in PostgreSQL, without lengths, and with the type below each domain: a cast to a type
#: with a length, as char and bit have by default, would cut a value that is too long. The insert itself checks lengths
#: and domains. Then the types with the digits to which the insert rounds, and the collation if it takes different texts
#: for equal: keys are compared by these.
_TYPES: Final = """
with recursive base(name, number, collated, type, digits, kind, below, digits_below) as (
    select attname, attnum, attcollation, atttypid, atttypmod, typtype, typbasetype, typtypmod
    from pg_attribute join pg_type on pg_type.oid = atttypid
    where attrelid = cast($1 as regclass) and attnum > 0 and not attisdropped
    union all
    select base.name, base.number, base.collated, base.below, base.digits_below, pg_type.typtype, pg_type.typbasetype,
        pg_type.typtypmod
    from base join pg_type on pg_type.oid = base.below where base.kind = 'd'
) select name, format_type(type, -1), format_type(type, case when type in (
        cast('numeric' as regtype), cast('time' as regtype), cast('timetz' as regtype), cast('timestamp' as regtype),
        cast('timestamptz' as regtype), cast('interval' as regtype)
    ) then digits else -1 end), (
        select quote_ident(nspname) || '.' || quote_ident(collname) from pg_collation
        join pg_namespace on pg_namespace.oid = collnamespace
        where pg_collation.oid = collated and not collisdeterministic
    ) from base where kind <> 'd' order by number
"""


@dataclass(frozen=True, slots=True)
class _Column:
    """SQL for a staged column: as a value of the table, and as a key that is equal if the table's keys are."""

    value: str
    key: str


class AdbcSink(Sink):
    """A sink into a table of a database; see `hg.sinks.adbc`."""

    exactly_once = True
    shows_at_commit = True

    def __init__(self, database: Database, table: str, mode: Mode, key: tuple[str, ...]) -> None:
        self._database = database
        self._mode = mode
        self._table = table
        schema, _, name = table.rpartition(".") if database.is_postgresql else ("", "", table)
        self._schema = schema or None
        self._target = f"{quoted(schema)}.{quoted(name)}" if schema else quoted(name)
        self._key = key
        self.takes_upserts = bool(key)
        self.upsert_key = key or None
        self._what = f"adbc: table {table}"
        self._commits = CommitTable(self._schema)
        self._columns: tuple[str, ...] = ()
        #: The types to which the rows are converted, as SQL, by column.
        self._found: dict[str, _Column] = {}
        self._staging: Staging | None = None
        self._program = ""
        self._resumed = (0, "")
        self._resumes = False

    # --- before the job

    def prepare(self, job: str, schema: pa.Schema) -> None:
        """Check the table, its columns, and the user's rights: run a commit of no rows, and roll it back."""
        self._prepare(schema, uuid.uuid4().hex[:12])
        if self._mode == "error":
            self._refuse_rows()
        self._resumes = False

    def prepared(self) -> Any:
        """Return the table and the run. The URI is not part of checkpoints, since it may hold a password."""
        return {"table": self._table, "run": self._prepared().run}

    def resume(self, job: str, schema: pa.Schema, prepared: Any) -> None:
        """Continue a run of another program. Raises SinkError if that program wrote to another table."""
        match prepared:
            case {"table": self._table, "run": str(run)} if _RUN.fullmatch(run):
                self._prepare(schema, run)
            case _:
                table = prepared.get("table") if isinstance(prepared, dict) else None
                raise SinkError(f"{self._what}: the rows up to the checkpoint are in table {table}; give that table")
        self._resumes = True

    def _prepare(self, schema: pa.Schema, run: str) -> None:
        self._staging = None
        for own in (ORDER, _NEWEST) if self._key else (ORDER,):
            if own in schema.names:
                raise PlanError(f"{self._what}: {own!r} is a name of the sink itself; rename the column")
        if missing := [name for name in self._key if name not in schema.names]:
            raise PlanError(f"{self._what}: key= has {missing[0]!r}; there are: {', '.join(schema.names)}")
        staging = Staging(self._schema, run, 0)
        self._columns = tuple(schema.names)
        with self._starting() as connection:
            self._found = self._columns_of(connection)
            if missing := [name for name in self._columns if name not in self._found]:
                raise PlanError(
                    f"{self._what}: the table has no column {missing[0]!r}; it has: {', '.join(self._found)}. "
                    "Select or rename the columns"
                )
            connection.execute(self._commits.definition)
            trial = staging.name(0, 0, 0)
            connection.add(self._schema, trial, with_order(schema).empty_table(), create=True)
            connection.execute(self._move(staging.qualified(trial)))
        self._staging = staging

    def _refuse_rows(self) -> None:
        with self._starting() as connection:
            if connection.execute(f"select 1 from {self._target} limit 1"):
                raise SinkError(
                    f'{self._what}: the table has rows; choose another, empty it, or mode="append" adds rows'
                )

    def _columns_of(self, connection: DatabaseConnection) -> dict[str, _Column]:
        """Return the table's columns. Raises SinkError if there is no table."""
        if not self._database.is_postgresql:
            names = connection.query(f"select * from {self._target} where 1 = 0").schema.names
            return {name: _Column(quoted(name), quoted(name)) for name in names}
        found = {}
        for name, kind, rounded, collation in connection.execute(_TYPES, self._target):
            staged = quoted(str(name))
            compared = f" collate {collation}" if collation else ""
            found[str(name)] = _Column(f"cast({staged} as {kind})", f"cast({staged} as {rounded}){compared}")
        return found

    # --- owners

    def newest_owner(self) -> int:
        """Return the epoch of the last owner in the table of commits."""
        if not self._resumes:
            return 0
        with self._starting() as connection:
            found = self._commits.find(connection, self._prepared().run)
        return found.owner if found is not None else 0

    def claim(self, claim: Claim) -> bool:
        """Claim the results in the table of commits."""
        staging = self._prepared()
        with self._starting() as connection:
            self._commits.create(connection)
            is_claimed = self._commits.claim(connection, staging.run, self._table, claim)
        if is_claimed:
            self._staging = dataclasses.replace(staging, owner=claim.epoch)
            self._program, self._resumed = claim.program.run, (claim.resumed, claim.resumed_run)
        return is_claimed

    def begin(self, claim: Claim) -> None:
        """Remove the staging tables of programs of this job that were lost before their first checkpoint."""
        if claim.home is None or claim.referenced is None:
            return
        claim.check()
        staging = self._prepared()
        kept = {
            staging.run,
            *(values["run"] for values in claim.referenced if isinstance(values, dict) and "run" in values),
        }
        with self._starting() as connection:
            for run in self._commits.runs_of(connection, self._table, claim.home):
                if run not in kept and self._commits.take(connection, run, claim.epoch):
                    connection.commit()
                    # A program that still runs may add a table after this. The next program then removes it.
                    if not dataclasses.replace(staging, run=run).drop(connection, self._database):
                        self._commits.remove(connection, run, claim.epoch)
                connection.commit()

    def published_after(self, checkpoint: int, run: str) -> int:
        """Return the last checkpoint in the table that `checkpoint` does not contain. Raises ResultsGone."""
        if not self._resumes:  # a run that no checkpoint names has published nothing
            return 0
        with self._starting() as connection:
            found = self._commits.find(connection, self._prepared().run)
        if found is None:
            raise ResultsGone(
                f"{self._what}: {self._commits.name} has no row of run {self._prepared().run}, so the sink cannot tell "
                "which rows are in the table. Put the row back, or start without resume"
            )
        return found.shown_after(checkpoint, run)

    # --- rows

    def writer(self, context: WriterContext) -> SinkWriter:
        """Return a writer of one subtask's staging tables."""
        return StagingWriter(self._database, self._prepared(), self._what, self._key, context)

    def commit(self, pending: Sequence[Any], checkpoint: int = 0) -> None:
        """Move the staged rows into the table, and record the checkpoint, in one transaction."""
        staging = self._prepared()
        run = self._resumed[1] if checkpoint and checkpoint == self._resumed[0] else self._program
        with self._connected() as connection:
            committed = self._commits.locked(connection, staging.run, staging.owner)
            if committed.has(checkpoint, run):
                return
            there = set(staging.found(connection, self._database))
            for name in map(staging.checked, filter(None, pending)):
                if name in there:
                    connection.execute(self._move(staging.qualified(name)))
                    connection.execute(f"drop table {staging.qualified(name)}")
                elif checkpoint:  # without checkpoints, a commit that is repeated finds no staging tables
                    raise ResultsGone(
                        f"{self._what}: the rows of checkpoint {checkpoint} are gone: there is no table {name}"
                    )
            self._commits.record(connection, staging.run, checkpoint, run)
            connection.commit()

    def finish(self) -> None:
        """Drop the staging tables. Remove the row in the table of commits if no checkpoint was committed."""
        with self._connected() as connection:
            self._clean(connection)

    def rollback(self, pending: Sequence[Any], checkpoint: int) -> None:
        """Commit the rows of the checkpoint, and drop all other staging tables."""
        staging = self._prepared()
        if checkpoint:
            self.commit(pending, checkpoint)
        with self._connected() as connection:
            self._commits.locked(connection, staging.run, staging.owner)
            connection.roll_back()
            staging.drop(connection, self._database)

    def abort(self, pending: Sequence[Any] = (), checkpoint: int = 0) -> None:
        """Commit the rows of the last checkpoint, and drop all other staging tables."""
        if self._staging is None or not self._staging.owner:
            return
        if checkpoint:
            self.commit(pending, checkpoint)
        with self._starting() as connection:  # a lock may be the reason why the job did not start
            self._clean(connection)
        self._staging = None

    def _clean(self, connection: DatabaseConnection) -> None:
        staging = self._prepared()
        self._commits.locked(connection, staging.run, staging.owner)
        connection.roll_back()
        staging.drop(connection, self._database)
        self._commits.remove(connection, staging.run, staging.owner)
        connection.commit()

    def _move(self, stage: str) -> str:
        """Return the statement that moves the rows of a staging table. Of rows with the same key, the last one wins."""
        columns = quoted(*self._columns)
        values = ", ".join(self._found[name].value for name in self._columns)
        if not self._key:
            return f"insert into {self._target} ({columns}) select {values} from {stage} order by {ORDER}"
        key, compared = quoted(*self._key), ", ".join(self._found[name].key for name in self._key)
        changed = [quoted(name) for name in self._columns if name not in self._key]
        update = "update set " + ", ".join(f"{name} = excluded.{name}" for name in changed) if changed else "nothing"
        # PostgreSQL locks each row: two jobs that lock rows of one table in different orders could wait for each other.
        order = compared if self._database.is_postgresql else ORDER
        return (
            f"insert into {self._target} ({columns}) select {values} from (select *, row_number() over "
            f"(partition by {compared} order by {ORDER} desc) as {_NEWEST} from {stage}) as staged "
            f"where {_NEWEST} = 1 order by {order} on conflict ({key}) do {update}"
        )

    def _prepared(self) -> Staging:
        if self._staging is None:
            raise SinkError(f"{self._what}: the sink was not prepared: call prepare() or resume() first")
        return self._staging

    @contextmanager
    def _connected(self) -> Iterator[DatabaseConnection]:
        with self._database.connected(SinkError, self._what) as connection:
            yield connection

    @contextmanager
    def _starting(self) -> Iterator[DatabaseConnection]:
        """Connect while the job starts: a statement waits for locks only for a short time, and the error names their
        holders."""
        with self._database.connected(SinkError, self._what, lock_wait=START_LOCK_WAIT) as connection:
            try:
                yield connection
            except Exception as error:
                if getattr(error, "sqlstate", None) != LOCKED:
                    raise
                connection.roll_back()
                holders = lock_holders(connection, self._target, self._commits.name)
                raise SinkError(
                    f"{self._what}: a statement has waited {START_LOCK_WAIT:g} s for a lock: {holders}"
                ) from None
