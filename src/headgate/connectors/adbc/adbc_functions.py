"""The functions `hg.sources.adbc`, `hg.sinks.adbc` and `hg.lookups.adbc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

import pyarrow as pa

from headgate.connectors.adbc.adbc_lookup import AdbcTable
from headgate.connectors.adbc.adbc_query import AdbcQuery
from headgate.connectors.adbc.adbc_sink import AdbcSink, Mode
from headgate.connectors.adbc.adbc_source import AdbcSource
from headgate.connectors.adbc.database import Database
from headgate.connectors.arguments import FLAG, SCHEMA_OR_NONE, TEXT, WHOLE, check, check_texts
from headgate.connectors.connector import Sink, Source
from headgate.errors import ConfigError
from headgate.operators.asked_table import AskedTable
from headgate.quantities import seconds

#: Seconds for the question which columns a lookup has.
_PLAN_TIMEOUT: Final = 30.0


def source(
    driver: Literal["postgresql", "sqlite"],
    uri: str,
    query: str,
    *,
    by: str,
    schema: pa.Schema | None = None,
    start: int | str | None = None,
    interval: float | str = "1 s",
    bounded: bool = False,
    batch_rows: int = 10_000,
    timeout: float | str = "5 min",
) -> Source:
    """Read the rows of a table or a query of a database, and later those that are added. See docs/how-to/databases.md.

    `uri` is as in `hg.sinks.adbc`. `query` is the name of a table, or a `select`. `by` is one of its columns, of whole
    numbers or text. Its values are unique and grow, such as those of an id. The source asks for the next `batch_rows`
    rows in the order of `by`, after the last value that it has read; with an index on `by`, this costs little. If there
    are no more rows, it asks again after `interval`; with `bounded`, the input ends. `start` is the value after which
    the source begins, or None for the lowest value. The last value is kept in checkpoints, so each row is read once,
    also after a failure. Rows that change later are not read again.

    One subtask reads. With `schema`, the source reads these columns and converts them; without, it asks the database
    for the columns when it is made. `timeout` is the longest time for one query.

    Raises ConfigError for impossible arguments, and without the packages of `headgate[adbc]`. Raises SourceError if the
    server does not answer, or if a table or column is missing. Also raises it for a type that Arrow does not have, and
    for a value of `by` that is null or occurs twice.

    >>> columns = pa.schema({"id": pa.int64(), "km": pa.float64()})
    >>> trips = hg.sources.adbc("sqlite", "trips.db", "select id, km from trips", by="id", schema=columns)
    >>> trips.schema.names
    ['id', 'km']
    """
    check(TEXT, query=query, by=by)
    check(SCHEMA_OR_NONE, schema=schema)
    check(FLAG, bounded=bounded)
    check(WHOLE, batch_rows=batch_rows)
    if not query.strip() or batch_rows < 1:
        raise ConfigError("adbc: query= must be a table or a select, and batch_rows= at least 1")
    if isinstance(start, bool) or not isinstance(start, (int, str, type(None))):
        raise ConfigError(f"adbc: start={start!r} must be a whole number or text, like the column by=")
    database = Database.checked(driver, uri, _seconds("timeout", timeout))
    return AdbcSource(
        database, query, by, schema, start=start, batch_rows=batch_rows, interval=_seconds("interval", interval),
        bounded=bounded,
    )  # fmt: skip


def sink(
    driver: Literal["postgresql", "sqlite"],
    uri: str,
    table: str,
    *,
    mode: Mode = "append",
    key: str | Sequence[str] = (),
    timeout: float | str = "5 min",
) -> Sink:
    """Write rows into a table of a database, each exactly once. See docs/how-to/databases.md.

    `uri` is `postgresql://user:password@host:5432/database`, or the path of an SQLite file. `table` is a name, or in
    PostgreSQL `schema.table`; the table must exist. The columns of the rows go to the columns with the same names, and
    are converted to their types. `mode="append"` adds rows. With `mode="error"`, a job also fails if the table has rows
    when it starts without resume. `mode="upsert"` replaces the row with the same values in `key`, a column or a list of
    columns with a unique constraint. Rows of the same key must come in order: use `key_by(key)` before.

    The subtasks copy rows into staging tables beside the table. When a checkpoint is complete, one transaction moves
    its rows into the table, and records the checkpoint in the table `headgate_commits`. Readers see rows then.
    Without checkpoints, they see them at the end of the job. `timeout` is the longest time for one statement.

    Raises ConfigError for impossible arguments, and without the packages of `headgate[adbc]`. When the job starts,
    raises SinkError if the server does not answer, if there is no such table, or if the user lacks rights. At the same
    time, raises PlanError for columns that the table lacks. If a statement fails while the job runs, raises SinkError,
    and the job restarts by its restart strategy.

    >>> env = hg.StreamEnvironment()
    >>> rows = env.from_source(hg.sources.iterable([{"city": "Rome", "km": 7}]))
    >>> sink = rows.sink_to(hg.sinks.adbc("sqlite", "trips.db", "trips", mode="upsert", key="city"))
    """
    check(TEXT, table=table)
    if mode not in get_args(Mode):
        raise ConfigError(f"adbc: mode={mode!r} must be one of {', '.join(map(repr, get_args(Mode)))}")
    names = [key] if isinstance(key, str) else key
    check_texts(key=names)
    if (mode == "upsert") != bool(names) or len(set(names)) < len(names):
        raise ConfigError(f'adbc: mode={mode!r} with key={key!r}: mode="upsert" needs a key=, and only that mode does')
    if not all(table.split(".")):
        raise ConfigError(f"adbc: table={table!r} must be a name, or schema.name")
    return AdbcSink(Database.checked(driver, uri, _seconds("timeout", timeout)), table, mode, tuple(names))


def lookup(driver: Literal["postgresql", "sqlite"], uri: str, query: str) -> AskedTable:
    """Let `DataStream.lookup` ask a database for the rows of keys. See docs/how-to/join-streams.md.

    `uri` is as in `hg.sinks.adbc`. `query` is the name of a table, or a `select`, in which a key has at most one row.
    The columns of `on` are whole numbers or text; in PostgreSQL, text is converted to the type of the column, such as
    uuid. `lookup` adds all other columns of the query, or only the columns of its argument `schema=`, with the
    types there.

    One query asks for the different keys of a batch, at most `batch_keys` of them. With an index on the columns of
    `on`, its cost depends on the number of these keys, not on the size of the table. Cache, retries, `concurrency`
    (also the most connections of a subtask) and `timeout` (the longest time for one query) are those of `lookup`.

    Raises ConfigError for impossible arguments, and without the packages of `headgate[adbc]`. The call of `lookup`
    raises SourceError if the database cannot be read, and PlanError for columns that it lacks.

    >>> cities = hg.lookups.adbc("sqlite", "trips.db", "select city, country from cities")
    >>> cities
    lookups.adbc(sqlite, 'select city, country from cities')
    """
    check(TEXT, query=query)
    if not query.strip():
        raise ConfigError("adbc: query= must be a table or a select")
    return AdbcTable(AdbcQuery(Database.checked(driver, uri, _PLAN_TIMEOUT), query))


def _seconds(name: str, value: float | str) -> float:
    try:
        return seconds(value)
    except ConfigError as error:
        raise ConfigError(f"adbc: {name}: {error.message}") from None
