"""Frames of other libraries as Arrow: pandas, polars, DuckDB, and what else speaks Arrow's PyCapsule protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from headgate.errors import SourceError
from headgate.operators.conversion import CONVERSION_ERRORS, cast, converted

#: Rows of a frame that one batch takes.
_BATCH_ROWS = 8192


#: Frames of Spark speak Arrow's protocol too, and would pass through the program.
SPARK_REMEDY: Final = "a DataFrame of Spark is read with hg.sources.dataframe(df)"


def is_frame(given: object) -> bool:
    """A table of some library in this process; a RecordBatch is none."""
    if isinstance(given, pa.RecordBatch) or is_of_spark(given):
        return False
    return hasattr(given, "__arrow_c_stream__") or _is_of_pandas(given)


def is_of_spark(given: object) -> bool:
    """A DataFrame of Spark, Spark Connect or pandas on Spark."""
    return type(given).__module__.startswith("pyspark.") and hasattr(given, "columns")


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


def as_table(frame: object, where: str) -> pa.Table:
    """A frame whole. Raises SourceError that begins with `where`."""
    return _table(frame, None, where)


def _table(frame: Any, schema: pa.Schema | None, where: str) -> pa.Table:
    """With a schema its columns are cast, so pandas' floats with NaN can be integers."""
    try:
        if _is_of_pandas(frame):
            frame = _with_index(frame, schema, where)
            if schema is not None:
                return pa.table([_cast_pandas(series, column) for series, column in _series(frame, schema)], schema)
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if not len(frame) and pa.null() in table.schema.types:
                name = table.column_names[table.schema.types.index(pa.null())]
                raise ValueError(f"it has no rows, which would tell the type of column {name!r}; give schema=")
            return table
        table = pa.table(frame)
        if schema is None or table.column_names != schema.names:
            return table
        return pa.table([_cast(table[column.name], column) for column in schema], schema)
    except CONVERSION_ERRORS as error:
        fit = "cannot become Arrow's" if schema is None else "does not fit the schema"
        raise SourceError(f"{where}, a {type(frame).__name__}, {fit}: {error}") from error


def _cast(values: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    with _naming(column):
        if values.null_count and not column.nullable:
            raise ValueError("it has nulls, and the schema says that it has none")
        return cast(values, column.type)


def _series(frame: Any, schema: pa.Schema) -> list[tuple[Any, pa.Field]]:
    """The columns of a frame of pandas that the schema names; others are left out."""
    names = [str(label) for label in frame.columns]
    for column in schema:
        if names.count(column.name) != 1:
            raise ValueError(f"column {column.name!r} is there {names.count(column.name)} times, among {names}")
    return [(frame.iloc[:, names.index(column.name)], column) for column in schema]


def _cast_pandas(series: Any, column: pa.Field) -> pa.ChunkedArray:
    """Of a Series; of one that holds Python's objects each is converted by itself."""
    if series.dtype != object:
        return _cast(pa.chunked_array([pa.Array.from_pandas(series)]), column)
    with _naming(column):
        values = converted(series.where(series.notna(), None).tolist(), column.type)
    return _cast(pa.chunked_array([values]), column)


@contextmanager
def _naming(column: pa.Field) -> Iterator[None]:
    try:
        yield
    except CONVERSION_ERRORS as error:
        raise ValueError(f"column {column.name!r} of {column.type}: {error}") from error


def _is_of_pandas(given: object) -> bool:
    """Its frames speak the protocol only from 2.2 on."""
    kinds = type(given).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas" for kind in kinds)


def _with_index(frame: Any, schema: pa.Schema | None, where: str) -> Any:
    """A frame of pandas with the levels of its index that have names as columns. Others must number the rows, unless a
    schema says which columns are wanted."""
    if not hasattr(frame, "reset_index"):
        return frame
    levels = [frame.index.get_level_values(number) for number in range(frame.index.nlevels)]
    for level in levels if schema is None and len(frame) else ():
        if level.name is None and (len(levels) > 1 or level.dtype.kind not in "iu"):
            raise SourceError(
                f"{where}: its index of {level.dtype} has no name; to keep it as a column, give "
                "frame.rename_axis('name'), to leave it out, frame.reset_index(drop=True)"
            )
    named = [level.name for level in levels if level.name is not None]
    return frame.reset_index(level=named) if named else frame


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
