"""Divides the rows of a batch into folders by the values of columns, as in Hive: `carrier=UA/day=2013-01-01`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PlanError
from headgate.records.canonical import as_arrow

#: Hive's folder name for null. As in Hive, the empty text has this name too.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

#: The characters that Hive and Spark write as %XX in folder names. Arrow, DuckDB, Hive and Spark decode them.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def check_partitioning(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Check that the columns exist, are not all columns of the schema, and have types whose values can be part of a
    folder's name.

    Raises PlanError.
    """
    for column in columns:
        if schema.get_field_index(column) < 0:
            raise PlanError(f"partition_by: there is no column {column!r}; there are: {', '.join(schema.names)}")
        if column.startswith(("_", ".")):
            raise PlanError(f"partition_by: readers skip folders whose names begin like {column!r}; rename the column")
        if not has_text(type_ := schema.field(column).type):
            raise PlanError(f"partition_by: column {column!r} is {type_}; only int, string, bool and time columns can")
    if len(set(columns)) < len(columns) or (columns and len(columns) == len(schema)):
        raise PlanError(
            f"partition_by={tuple(columns)}: name no column twice, and leave at least one column for the files"
        )


def has_text(type_: pa.DataType) -> bool:
    """Return whether the values of a type can be part of a folder's name."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date, pa.types.is_timestamp)
    return any(is_kind(type_) for is_kind in kinds)


def by_folder(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by folder. Yields the relative path of each folder, and its rows without the columns, in their
    order.

    Without columns, yields "" and the batch.
    """
    if not columns:
        yield "", batch
        return
    yield from divided(batch.drop_columns(list(columns)), columns, [batch.column(column) for column in columns])


def divided(
    rows: pa.RecordBatch, names: Sequence[str], values: Sequence[pa.Array], *, exact: bool = False
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows by `values`: for each of `names`, an array with a value for each row.

    Yields the relative path of each folder, and its rows, in their order. With `exact`, only null has the folder name
    of null. Otherwise the empty text has it too.
    """
    codes = np.zeros(rows.num_rows, np.int64)
    encoded = [pc.dictionary_encode(array, null_encoding="encode") for array in values]
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[
            1
        ]  # renumber from 0, so that the product over many columns does not overflow
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    firsts = as_arrow(order[starts])
    folders = [_folders(name, column.take(firsts), exact) for name, column in zip(names, encoded, strict=True)]
    for start, end, *parts in zip(starts, [*starts[1:], len(order)], *folders, strict=True):
        # A copy: writers keep the rows of folders with few rows for long, and a slice would keep the whole batch.
        yield "/".join(parts), rows.take(as_arrow(order[start:end]))


def _folders(name: str, values: pa.DictionaryArray, exact: bool) -> list[str]:
    """Return the folder name of each value."""
    texts = values.dictionary_decode().cast(pa.string()).to_pylist()
    return [f"{_escaped(name)}={_value_name(text, exact)}" for text in texts]


def _value_name(text: str | None, exact: bool) -> str:
    if text is None or (text == "" and not exact):
        return NO_VALUE
    return "%5F" + text[1:] if text == NO_VALUE and exact else _escaped(text)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
