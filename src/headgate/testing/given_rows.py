"""Conversion of a test's rows (dicts, RecordBatches, frames) to one RecordBatch of the source's schema."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

from headgate.connectors.frames import is_frame, one_batch
from headgate.connectors.schemas import shown
from headgate.errors import ConfigError, SourceError
from headgate.operators.conversion import CONVERSION_ERRORS, converted

#: A row as a dict, a list of such rows, a RecordBatch, or a frame of pyarrow, pandas or polars.
Rows: TypeAlias = Any


def as_batch(given: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Return the given rows as one batch of `schema`. Raises ConfigError if they do not fit it."""
    if isinstance(given, dict):
        return _from_dicts([given], schema)
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if is_frame(given):
        return _from_frame(given, schema)
    if isinstance(given, list) and all(isinstance(row, dict) for row in given):
        return _from_dicts(given, schema)
    raise ConfigError(
        f"{given!r} is not a row: give a dict, a list of dicts, a RecordBatch, a frame, or an element of "
        "headgate.testing"
    )


def _from_frame(frame: Any, schema: pa.Schema) -> pa.RecordBatch:
    if isinstance(frame, pa.Table) and sorted(frame.column_names) == sorted(schema.names):
        frame = frame.select(schema.names)
    try:
        batch = one_batch(frame, schema, "the rows that the test gives")
    except SourceError as error:
        raise ConfigError(error.message) from None
    if not batch.schema.equals(schema):
        raise ConfigError(
            f"the rows that the test gives have the schema ({shown(batch.schema)}); the source has ({shown(schema)})"
        )
    return batch


def _from_dicts(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        if unknown := [name for name in row if name not in schema.names]:
            raise ConfigError(f"{row!r}: there is no column {unknown[0]!r}; the source has: {shown(schema)}")
    columns = [_column(field, [row.get(field.name) for row in rows]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, values: list[object]) -> pa.Array:
    try:
        column = converted(values, field.type)
    except CONVERSION_ERRORS as error:
        raise ConfigError(f"{values!r} do not fit column {field.name!r} of type {field.type}: {error}") from None
    if column.null_count and not field.nullable:
        raise ConfigError(f"column {field.name!r} is not nullable, but a row has no value for it: give one")
    return column
