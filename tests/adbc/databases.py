"""SQLite files for tests of the database connectors, through the same driver: a second copy of the library in one
process would break SQLite's locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adbc_driver_sqlite import dbapi


def execute(path: Path | str, *statements: str) -> None:
    """Execute statements, and commit."""
    with dbapi.connect(str(path)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def rows(path: Path | str, query: str) -> list[dict[str, Any]]:
    with dbapi.connect(str(path)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        found: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
    return found


def tables(path: Path | str) -> set[str]:
    """Return the names of all tables."""
    return {row["name"] for row in rows(path, "select name from sqlite_master where type = 'table'")}
