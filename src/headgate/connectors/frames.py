"""Frames of other libraries as Arrow: pandas, polars, DuckDB, and what else speaks Arrow's PyCapsule protocol."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headgate.errors import SourceError

#: Rows of a frame that one batch takes.
_BATCH_ROWS = 8192


def is_frame(given: object) -> bool:
    """A table of some library; a RecordBatch is none."""
    if isinstance(given, pa.RecordBatch):
        return False
    return hasattr(given, "__arrow_c_stream__") or _is_of_pandas(given)


def batches(frame: object, schema: pa.Schema | None) -> list[pa.RecordBatch]:
    """A frame in batches for several subtasks; one without rows for a frame without."""
    table = _table(frame, schema, "iterable: the frame")
    return table.to_batches(max_chunksize=_BATCH_ROWS) or [_no_rows(table.schema)]


def one_batch(frame: object, schema: pa.Schema | None, where: str) -> pa.RecordBatch:
    """A frame as one batch. Raises SourceError that begins with `where`."""
    table = _table(frame, schema, where).combine_chunks()
    found = table.to_batches()
    if len(found) > 1:
        raise SourceError(f"{where} has more text than one batch holds; cut it into several frames")
    return found[0] if found else _no_rows(table.schema)


def _table(frame: Any, schema: pa.Schema | None, where: str) -> pa.Table:
    """Without the index of pandas. With a schema its columns are cast, so pandas' floats with NaN can be integers."""
    try:
        if _is_of_pandas(frame):
            return pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
        table = pa.table(frame)
        return table if schema is None or table.column_names != schema.names else table.cast(schema)
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        fit = "cannot become Arrow's" if schema is None else "does not fit the schema"
        raise SourceError(f"{where}, a {type(frame).__name__}, {fit}: {error}") from error


def _is_of_pandas(given: object) -> bool:
    """Its frames speak the protocol only from 2.2 on."""
    kinds = type(given).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas" for kind in kinds)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
