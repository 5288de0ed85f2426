"""A database that ADBC can reach: its connections, and its errors in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import pyarrow as pa

from headgate.connectors.adbc.interruptible import Interruptible
from headgate.connectors.adbc.postgres_values import without_uint64
from headgate.errors import ConfigError, HeadgateError

#: The packages of the drivers, by the names that users give.
_PACKAGES: Final = {"postgresql": "adbc_driver_postgresql", "sqlite": "adbc_driver_sqlite"}
#: A URI in which `@`, `/` and so on only separate its parts: user and password, hosts, database, and parameters.
_URI: Final = re.compile(
    r"(?!.*%(?![0-9A-Fa-f]{2}))postgres(ql)?://([^\s/?#@[\]]*@)?[^\s/?#@]*(/[^\s?#@]*)?(\?[^\s#@]*)?", re.DOTALL
)
#: Seconds in which a server must take a connection.
_CONNECT_TIMEOUT: Final = 10
#: The SQLSTATE of a statement that waited for a lock in vain, or does not wait: lock_not_available.
LOCKED: Final = "55P03"
#: Seconds that a statement waits for a lock while a job starts.
START_LOCK_WAIT: Final = 30.0
#: The rows from which SQLite's driver finds the types of a query's columns. Later values of other types would fail.
_FOR_SQLITE: Final = {"adbc.sqlite.query.batch_rows": "1000000"}
#: What to do about an error, by the SQLSTATE that it begins with.
_ADVICE: Final = {
    "08": "check the uri= and that a server runs there",
    "21000": "two different keys of the rows are equal in the table: make them equal in the rows",
    "22": "a value does not fit its column: convert it, or change the column",
    "23": "a row breaks a constraint of the table: change the rows, or the constraint",
    "28": "check user name and password in uri=",
    "3D": "check the name of the database in uri=",
    "42501": "grant the user this right",
    "42703": "select or rename the columns, so that all of them are in the table",
    "42P01": "create the table, or correct its name, which is case-sensitive",
    "42P10": 'mode="upsert" needs a primary key or a unique constraint on exactly the columns of key=',
    "42804": "convert the column to the type of the table's column",
    "42846": "convert the column to the type of the table's column",
    "53": "the server has no room, or no free connection",
    "55P03": "another session holds a lock: let it end its transaction, or end it",
    "57014": "it took longer than timeout=, or somebody has cancelled it",
    "57": "the server is going down, or has ended the statement",
}


@dataclass(frozen=True, slots=True)
class Database:
    """A driver's name, and a URI. `repr` does not show the URI, because it may hold a password.

    `timeout` is the longest time, in seconds, that one statement may take.
    """

    driver: str
    uri: str = field(repr=False)
    timeout: float

    @staticmethod
    def checked(driver: str, uri: str, timeout: float) -> Database:
        """Check the arguments without a connection. Raises ConfigError, also if the driver is not installed."""
        if driver not in _PACKAGES:
            raise ConfigError(f"adbc: driver={driver!r} must be one of {', '.join(map(repr, _PACKAGES))}")
        if not isinstance(uri, str) or not uri:
            raise ConfigError("adbc: uri= must be a string, such as 'postgresql://user@host:5432/database'")
        if driver == "postgresql" and not uri.startswith(("postgresql://", "postgres://")):
            raise ConfigError("adbc: the uri= of PostgreSQL must begin with postgresql://")
        if driver == "postgresql" and not _URI.fullmatch(uri):  # the server's library would show a part of the password
            raise ConfigError(
                "adbc: uri= has a character that must be percent-encoded, such as @, /, #, ?, % or a space in a "
                "password: urllib.parse.quote(password, safe='') does it"
            )
        if timeout <= 0:
            raise ConfigError("adbc: timeout= must be above 0")
        _dbapi(driver)
        return Database(driver, uri, timeout)

    @property
    def is_postgresql(self) -> bool:
        return self.driver == "postgresql"

    @contextmanager
    def connected(
        self, kind: type[HeadgateError], what: str, *, autocommit: bool = False, lock_wait: float | None = None
    ) -> Iterator[DatabaseConnection]:
        """Connect for a block. What the block does not commit is rolled back.

        A statement waits for locks for `lock_wait` seconds, or for None as long as it may take. Raises `kind` for every
        error of the database. The message begins with `what`.
        """
        with database_errors(kind, what):
            connection = DatabaseConnection(self, autocommit=autocommit, lock_wait=lock_wait)
            try:
                yield connection
            finally:
                connection.close()


class DatabaseConnection:
    """An open connection. Without `autocommit`, its statements belong to one transaction, until `commit`.

    Parameters of statements are `$1`, `$2` and so on, first used in this order: all drivers know this form.
    """

    def __init__(self, database: Database, *, autocommit: bool = False, lock_wait: float | None = None) -> None:
        milliseconds = int(database.timeout * 1000)
        lock_wait_ms = milliseconds if lock_wait is None else min(milliseconds, int(lock_wait * 1000))
        dbapi = _dbapi(database.driver)
        if database.is_postgresql:
            uri, settings = _with_deadlines(database.uri, milliseconds), [f"set statement_timeout = {milliseconds}"]
            settings.append("set timezone = 'UTC'")  # in others, two times of UTC can be one time of a clock
            if lock_wait is not None:
                settings.append(f"set lock_timeout = {lock_wait_ms}")
        else:
            uri, settings = database.uri, [f"pragma busy_timeout = {lock_wait_ms}"]
        self._is_postgresql = database.is_postgresql
        #: Whether the next statement begins a transaction of SQLite. A connection without statements locks nothing.
        self._begins = False
        self._calls = Interruptible()
        self._connection = dbapi.connect(uri, autocommit=True)
        try:
            for setting in settings:
                self.execute(setting)
            if not autocommit:
                self._connection.adbc_connection.set_autocommit(False)
        except BaseException:
            self.close()
            raise
        self._locks_first = self._begins = not autocommit and not database.is_postgresql

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement. Returns the rows of a query or of a `returning`."""

        def rows(cursor: Any) -> list[tuple[Any, ...]]:
            cursor.execute(statement, parameters=values or None)
            return list(cursor.fetchall()) if cursor.description else []

        found: list[tuple[Any, ...]] = self._run(rows)
        return found

    def query(self, statement: str, *values: Any) -> pa.Table:
        """Return the rows of a query as a table."""

        def table(cursor: Any) -> Any:
            if not self._is_postgresql:
                cursor.adbc_statement.set_options(**_FOR_SQLITE)
            cursor.execute(statement, parameters=values or None)
            return cursor.fetch_arrow_table()

        found: pa.Table = self._run(table)
        return found

    def add(self, schema: str | None, table: str, rows: pa.Table, *, create: bool) -> None:
        """Add rows to a table. With `create`, create the table first."""
        more = {"db_schema_name": schema} if schema else {}
        if self._is_postgresql:
            rows = without_uint64(rows)
        self._run(lambda cursor: cursor.adbc_ingest(table, rows, mode="create" if create else "append", **more))

    def commit(self) -> None:
        self._connection.adbc_connection.commit()
        self._begins = self._locks_first

    def roll_back(self) -> None:
        self._connection.adbc_connection.rollback()
        self._begins = self._locks_first

    def close(self) -> None:
        """Close the connection. What is not committed is rolled back. Raises no errors."""

        def close() -> None:
            with suppress(*_ERRORS()):
                self._connection.close()

        self._calls.close(close)

    def _run(self, statement: Callable[[Any], Any]) -> Any:
        """Return what a function of a cursor returns. Ctrl-C ends the statement."""
        cursors: list[Any] = []

        def run() -> Any:
            with self._connection.cursor() as cursor:
                cursors.append(cursor)
                if self._begins:
                    self._begin()
                return statement(cursor)

        def cancel() -> None:
            for cursor in cursors:
                cursor.adbc_cancel()

        return self._calls.run(run, cancel)

    def _begin(self) -> None:
        """Lock an SQLite file for this transaction, in place of the one that the driver has begun.

        The driver's transaction would get this lock at its first write. If it has read before, and another program has
        the lock, SQLite does not wait, but fails at once.
        """
        with self._connection.cursor() as cursor:
            cursor.execute("rollback")
            try:
                cursor.execute("begin immediate")
            except BaseException:
                cursor.execute("begin")
                raise
        self._begins = False


@contextmanager
def database_errors(kind: type[HeadgateError], what: str) -> Iterator[None]:
    """Raise `kind` for an error of the database, in words, with `what` before it and advice after it."""
    try:
        yield
    except _ERRORS() as error:
        raise kind(f"{what}: {in_words(error)}") from None


def in_words(error: Any) -> str:
    """Return a database's error in words, and what to do about it."""
    code = error.sqlstate or ""
    details = dict(getattr(error, "details", ()))
    text = details.get(b"PG_DIAG_MESSAGE_PRIMARY", b"").decode() or " ".join(str(error).split())
    if (more := details.get(b"PG_DIAG_MESSAGE_DETAIL", b"").decode()) and not code.startswith(("22", "23")):
        text += f" ({more})"  # not for wrong values: the detail would show the row
    if found := re.search(r"Can't map Arrow type '(\w+)'", text):
        return f"the database has no type for a column of the Arrow type {found[1]}; make it JSON text"
    is_unreachable = not code and "ailed to connect" in text
    advice = next((advice for start, advice in _ADVICE.items() if code.startswith(start)), None)
    if is_unreachable:
        advice = _ADVICE["28" if "authentication" in text else "3D" if "does not exist" in text else "08"]
    return f"{text} (SQLSTATE {code})" * bool(code) + text * (not code) + (f"; {advice}" if advice else "")


def quoted(*names: str) -> str:
    """Return names as SQL, with commas: each in double quotes."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def _with_deadlines(uri: str, milliseconds: int) -> str:
    """Return the URI with libpq's deadlines, unless the user has set them."""
    _, mark, query = uri.partition("?")
    deadlines = {"connect_timeout": str(_CONNECT_TIMEOUT), "tcp_user_timeout": str(milliseconds)}
    given = dict(parse_qsl(query, keep_blank_values=True))
    missing = urlencode({name: value for name, value in deadlines.items() if name not in given})
    return f"{uri}{'&' if query else '' if mark else '?'}{missing}" if missing else uri


def _dbapi(driver: str) -> Any:
    package = _PACKAGES[driver]
    try:
        return import_module(f"{package}.dbapi")
    except ImportError as error:
        raise ConfigError(
            f"adbc: driver {driver!r} needs the package {package.replace('_', '-')} ({error}): "
            "pip install 'headgate[adbc]'"
        ) from None


def _ERRORS() -> tuple[type[Exception], ...]:
    """Return the classes of the databases' errors. They are loaded only by jobs that use a database."""
    return (import_module("adbc_driver_manager").Error,)
