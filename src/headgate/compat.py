"""Replacements for functions that the oldest supported pyarrow lacks. `spark.older_spark` does the same for PySpark.

Each entry at the end names the first version of pyarrow that has the function. Remove the entry when Headgate supports
no older version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Cast = Callable[[pa.Array, pa.DataType], pa.Array]
ConcatBatches = Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch]
FilterBatch = Callable[[pa.RecordBatch, pc.Expression], pa.RecordBatch]


def concat_columns(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join one or more batches into one, column by column. All batches have the same schema."""
    schema = batches[0].schema
    columns = [pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def filter_as_table(batch: pa.RecordBatch, predicate: pc.Expression) -> pa.RecordBatch:
    """Return the rows for which an Arrow expression is true."""
    batches = pa.Table.from_batches([batch]).filter(predicate).combine_chunks().to_batches()
    return batches[0] if batches else batch.slice(0, 0)  # a table without rows has no batches


def cast_values(column: pa.Array, to: pa.DataType) -> pa.Array:
    """Return the column in another type.

    For types that Arrow cannot cast, such as `string_view`, the function converts each value, which is slow.
    """
    try:
        return column.cast(to)
    except pa.ArrowNotImplementedError:
        return pa.array(column.to_pylist(), to)


def remainder(dividend: Any, divisor: Any) -> Any:
    """Return the remainder of a division that truncates towards zero.

    Both arguments have the same type. Each is an array or a scalar.
    """
    with np.errstate(invalid="ignore"):  # the remainder of inf is NaN, as in Arrow
        rest = pa.array(np.fmod(_numbers(dividend), _numbers(divisor)), dividend.type)
    is_null = pc.or_(pc.is_null(dividend), pc.is_null(divisor))
    if isinstance(is_null, pa.Scalar):
        return pa.scalar(None, dividend.type) if is_null.as_py() else rest[0]
    return pc.if_else(is_null, pa.scalar(None, dividend.type), rest)


def _numbers(value: Any) -> np.ndarray[Any, Any]:
    """Return the values as NumPy numbers, with 1 in place of null."""
    array = pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
    numbers: np.ndarray[Any, Any] = array.fill_null(1).to_numpy()
    return numbers


_PYARROW: Final = int(pa.__version__.partition(".")[0])

#: Return a column in another type, also if it has views (`string_view`) at any depth. pyarrow has this since 18.
cast: Final[Cast] = pa.Array.cast if _PYARROW >= 18 else cast_values

#: Join batches of one schema into one batch. pyarrow has this since 19.
concat_batches: Final[ConcatBatches] = getattr(pa, "concat_batches", concat_columns)

#: Return the rows for which an Arrow expression is true. pyarrow has this since 17.
filter_batch: Final[FilterBatch] = pa.RecordBatch.filter if _PYARROW >= 17 else filter_as_table

#: Kernels that the installed pyarrow lacks, by name.
MISSING_KERNELS: Final[dict[str, Callable[..., Any]]] = {
    name: kernel for name, kernel in {"remainder": remainder}.items() if name not in pc.list_functions()
}
