"""Checks that a table still has the columns of a data file that a commit adds: somebody may have changed the table.

Each file of a checkpoint carries a digest of the table's columns. A commit reads the columns of the file itself only if
the digest differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headgate.connectors.file_sinks.file_writer import Target
from headgate.errors import ResultsGone, SinkError
from headgate.filesystems import brief

#: The metadata key of a column's number, by which Iceberg finds the column even if it gets another name.
_NUMBER: Final = b"PARQUET:field_id"
#: The changes of types that Iceberg allows, beside those of decimals.
_WIDER: Final = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
#: The most files that are looked up at the same time.
_LOOKUPS: Final = 16
_ADVICE: Final = (
    "Change the table back and resume, so that the rows of the last checkpoint are added; or start without resume, and "
    "they are missing"
)


def columns_digest(columns: pa.Schema, folders: Sequence[str]) -> str:
    """Return a text that differs if the columns differ, or the columns that make folders."""
    content = columns.serialize().to_pybytes() + json.dumps(list(folders)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def check_files(what: str, target: Target, files: Sequence[dict[str, Any]], columns: pa.Schema,
                folders: Sequence[str], *, widens: bool) -> None:  # fmt: skip
    """Raise SinkError if readers of a table with these columns would not find the rows of a file, and ResultsGone if a
    file is gone.

    `folders` are the names of the folders that the table's partitions make. With `widens`, readers also find the values
    of a file that was written before its column got a wider type.
    """
    _check_presence(what, target, [file["path"] for file in files])
    now = columns_digest(columns, folders)
    for file in files:
        if file.get("columns") != now:
            _check_file(what, target, file["path"], columns, folders, widens=widens)


def _check_presence(what: str, target: Target, names: Sequence[str]) -> None:
    paths = [target.path(name) for name in names]
    try:
        with ThreadPoolExecutor(_LOOKUPS) as lookups:  # Arrow would ask an object store for one after the other
            found = list(lookups.map(target.filesystem.get_file_info, paths))
    except OSError as error:
        raise SinkError(f"{what}: the files of the last checkpoint cannot be looked up: {brief(error)}") from error
    gone = [name for name, info in zip(names, found, strict=True) if info.type != fs.FileType.File]
    if gone:
        raise ResultsGone(
            f"{what}: {len(gone)} of {len(names)} files of the last checkpoint are gone, such as {gone[0]}: something "
            "removes files that the table does not list yet. Put them back, or start without resume, and their rows "
            "are missing"
        )


def _check_file(what: str, target: Target, name: str, columns: pa.Schema, folders: Sequence[str], *,
                widens: bool) -> None:  # fmt: skip
    try:
        found = pq.read_schema(target.path(name), filesystem=target.filesystem)
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"{what}: the file {name} of the last checkpoint cannot be read: {brief(error)}") from error
    given = [unquote(part.split("=", 1)[0]) for part in name.split("/")[:-1]]
    if given != list(folders):
        raise SinkError(
            f"{what}: the table is partitioned by {list(folders)}, and the file {name} by {given}. {_ADVICE}"
        )
    for column in found:
        if column.name not in columns.names:
            raise SinkError(f"{what}: the table has no column {column.name!r}, which the file {name} has. {_ADVICE}")
        wanted = columns.field(column.name)
        if not _reads(column.type, wanted.type, widens) or _number(column) not in (b"", _number(wanted)):
            raise SinkError(
                f"{what}: column {column.name!r} is {_described(wanted)} in the table, and {_described(column)} in the "
                f"file {name}. {_ADVICE}"
            )
    for column in columns:
        if not column.nullable and column.name not in (*found.names, *folders):
            raise SinkError(f"{what}: the file {name} has no column {column.name!r}, which the table needs. {_ADVICE}")


def _number(column: pa.Field) -> bytes:
    return bytes((column.metadata or {}).get(_NUMBER, b""))


def _described(column: pa.Field) -> str:
    number = _number(column).decode()
    return f"{column.type} with the number {number}" if number else str(column.type)


def _reads(found: pa.DataType, wanted: pa.DataType, widens: bool) -> bool:
    """Return whether readers of a column find values of type `found` in a file."""
    if str(found).replace("large_", "") == str(wanted).replace("large_", ""):
        return True
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return widens and found.scale == wanted.scale and found.precision < wanted.precision
    return widens and (found, wanted) in _WIDER
