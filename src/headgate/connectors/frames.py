"""Converts frames (tables) of pandas, polars, DuckDB, and all libraries with Arrow's PyCapsule protocol to Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import pyarrow as pa

from headgate.errors import SourceError
from headgate.operators.conversion import CONVERSION_ERRORS, cast, converted

if TYPE_CHECKING:
    import pandas as pd


class ArrowStream(Protocol):
    """An object that gives its rows by Arrow's PyCapsule protocol, such as a Polars frame or a pyarrow Table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


#: The frames that `is_frame` accepts. Before pandas 2.2 a DataFrame lacks the protocol.
Frame: TypeAlias = "pd.DataFrame | ArrowStream"

#: The most rows of one batch of a frame.
_BATCH_ROWS = 8192
#: The advice for a Spark DataFrame. A Spark DataFrame has Arrow's protocol too, but all its rows would pass through the
#: driver.
SPARK_REMEDY: Final = "read a Spark DataFrame with hg.sources.dataframe(df)"


def is_frame(given: object) -> bool:
    """Return whether `given` is an in-memory table of some library. A RecordBatch is not a frame."""
    if isinstance(given, pa.RecordBatch) or is_of_spark(given):
        return False
    return hasattr(given, "__arrow_c_stream__") or _is_of_pandas(given)


def is_of_spark(given: object) -> bool:
    """Return whether `given` is a DataFrame of Spark, Spark Connect or pandas on Spark."""
    return type(given).__module__.startswith("pyspark.") and hasattr(given, "columns")


def batches(frame: object, schema: pa.Schema | None) -> list[pa.RecordBatch]:
    """Split a frame into batches of at most 8192 rows, so that several subtasks can read it.

    The columns are cast to `schema`. A frame without rows becomes one empty batch. Raises SourceError.
    """
    table = _table(frame, schema, "iterable: the frame")
    return table.to_batches(max_chunksize=_BATCH_ROWS) or [_no_rows(table.schema)]


def one_batch(frame: object, schema: pa.Schema | None, name: str) -> pa.RecordBatch:
    """Convert a frame to one batch. Raises SourceError, whose text begins with `name`."""
    table = _table(frame, schema, name).combine_chunks()
    chunks = table.to_batches()
    if len(chunks) > 1:
        raise SourceError(
            f"{name}: its {table.num_rows} rows do not fit in one batch; cut the frame into several frames"
        )
    return chunks[0] if chunks else _no_rows(table.schema)


def as_table(frame: object, name: str) -> pa.Table:
    """Convert a frame to a table. Raises SourceError, whose text begins with `name`."""
    return _table(frame, None, name)


def _table(frame: Any, schema: pa.Schema | None, name: str) -> pa.Table:
    """Convert a frame, and cast its columns to the schema. Integers that pandas stores as floats with NaN become
    integers."""
    try:
        if _is_of_pandas(frame):
            frame = _with_index(frame, schema, name)
            if schema is not None:
                return pa.table([_cast_pandas(series, column) for series, column in _series(frame, schema)], schema)
            table = pa.Table.from_pandas(frame, preserve_index=False)
            if not len(frame) and pa.null() in table.schema.types:
                column_name = table.column_names[table.schema.types.index(pa.null())]
                raise ValueError(f"it has no rows, so the type of column {column_name!r} is unknown; give schema=")
            return table
        table = pa.table(frame)
        if schema is None or table.column_names != schema.names:
            return table
        return pa.table([_cast(table[column.name], column) for column in schema], schema)
    except CONVERSION_ERRORS as error:
        fit = "cannot become Arrow's" if schema is None else "does not fit the schema"
        raise SourceError(f"{name}, a {type(frame).__name__}, {fit}: {error}") from error


def _cast(values: pa.ChunkedArray, column: pa.Field) -> pa.ChunkedArray:
    with _naming(column):
        if values.null_count and not column.nullable:
            raise ValueError(f"it is null in {values.null_count} of {len(values)} rows, but the schema allows none")
        return cast(values, column.type)


def _series(frame: Any, schema: pa.Schema) -> list[tuple[Any, pa.Field]]:
    """Return the columns of a pandas frame that the schema names, each with its field in the schema."""
    names = [str(label) for label in frame.columns]
    for column in schema:
        if (count := names.count(column.name)) != 1:
            raise ValueError(f"it must have one column {column.name!r}, but has {count}; its columns are {names}")
    return [(frame.iloc[:, names.index(column.name)], column) for column in schema]


def _cast_pandas(series: Any, column: pa.Field) -> pa.ChunkedArray:
    """Cast a pandas Series. If the Series holds Python objects, convert each object separately."""
    if series.dtype != object:
        return _cast(pa.chunked_array([pa.Array.from_pandas(series)]), column)
    with _naming(column):
        values = converted(series.where(series.notna(), None).tolist(), column.type)
    return _cast(pa.chunked_array([values]), column)


@contextmanager
def _naming(column: pa.Field) -> Iterator[None]:
    """Add the column's name and type to conversion errors."""
    try:
        yield
    except CONVERSION_ERRORS as error:
        raise ValueError(f"column {column.name!r} of {column.type}: {error}") from error


def _is_of_pandas(given: object) -> bool:
    """Return whether `given` is a pandas DataFrame. Before pandas 2.2 a DataFrame lacks Arrow's protocol."""
    kinds = type(given).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas" for kind in kinds)


def _with_index(frame: Any, schema: pa.Schema | None, name: str) -> Any:
    """Turn the named levels of a pandas index into columns.

    Without a schema, only an index of one level of integers may lack a name: it numbers the rows. Raises SourceError
    for any other level without a name.
    """
    if not hasattr(frame, "reset_index"):
        return frame
    levels = [frame.index.get_level_values(number) for number in range(frame.index.nlevels)]
    for level in levels if schema is None and len(frame) else ():
        if level.name is None and (len(levels) > 1 or level.dtype.kind not in "iu"):
            raise SourceError(
                f"{name}: its index of {level.dtype} has no name; to keep it as a column, give "
                "frame.rename_axis('name'), to leave it out, frame.reset_index(drop=True)"
            )
    named = [level.name for level in levels if level.name is not None]
    return frame.reset_index(level=named) if named else frame


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
