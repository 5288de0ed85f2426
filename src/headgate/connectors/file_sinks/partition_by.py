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
        type_ = schema.field(column).type
        if not (pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_boolean(type_)
                or pa.types.is_date(type_) or pa.types.is_timestamp(type_)):  # fmt: skip
            raise PlanError(f"partition_by: column {column!r} is {type_}; only int, string, bool and time columns can")
    if len(set(columns)) < len(columns) or (columns and len(columns) == len(schema)):
        raise PlanError(
            f"partition_by={tuple(columns)}: name no column twice, and leave at least one column for the files"
        )


def by_folder(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by folder. Yields the relative path of each folder, and its rows without the columns, in their
    order.

    Without columns, yields "" and the batch.
    """
    if not columns:
        yield "", batch
        return
    codes = np.zeros(batch.num_rows, np.int64)
    encoded = [pc.dictionary_encode(batch.column(column), null_encoding="encode") for column in columns]
    for column in encoded:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[
            1
        ]  # renumber from 0, so that the product over many columns does not overflow
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rows = batch.drop_columns(list(columns)).take(as_arrow(order))
    firsts = as_arrow(order[starts])
    names = [_folders(name, column.take(firsts)) for name, column in zip(columns, encoded, strict=True)]
    for start, end, *parts in zip(starts, [*starts[1:], len(order)], *names, strict=True):
        yield "/".join(parts), rows.slice(start, end - start)


def _folders(column: str, values: pa.DictionaryArray) -> list[str]:
    """Return the folder name of each value of a column."""
    texts = values.dictionary_decode().cast(pa.string()).to_pylist()
    return [f"{_escaped(column)}={_escaped(text) if text else NO_VALUE}" for text in texts]


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
