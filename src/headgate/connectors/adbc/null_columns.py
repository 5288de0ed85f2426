"""Columns without values. SQLite knows the types of values only, so its driver says int64 for a column without any."""

from __future__ import annotations

import pyarrow as pa


def typed(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return a column without values as one of the wanted type, and any other column as it is.

    Some types, such as binary and dates, cannot be made from int64, not even from its nulls.
    """
    return pa.chunked_array([pa.nulls(len(column), type_)]) if column.null_count == len(column) else column
