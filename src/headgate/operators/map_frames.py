"""`MapFrames`: the operator of a user's function on frames of pandas or polars, one for each batch."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa

from headgate.errors import PlanError, UserFunctionError
from headgate.operators.conversion import CONVERSION_ERRORS, cast, shown
from headgate.operators.operator import Operator, call_user, function_name
from headgate.operators.rows import MapBatches, visible
from headgate.records.arrow import plain_type

#: The libraries, and the word after `pip install` for each.
FRAMES: Final = {"pandas": "pandas", "polars": "'headgate[polars]'"}
#: Kinds of types. Values of one kind are cast, if no value changes. Values of another kind are an error.
_KINDS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind),
    lambda kind: pa.types.is_boolean(kind),
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind),
    lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date(kind),
    lambda kind: pa.types.is_time(kind),
    lambda kind: pa.types.is_duration(kind),
    lambda kind: pa.types.is_nested(kind),
)


def operator_for(frame: object) -> Callable[..., Operator]:
    """Return the operator for `map_batches(frame=...)`. Raises PlanError for another library, or a missing one."""
    if not isinstance(frame, str) or frame not in FRAMES:
        raise PlanError(f'map_batches: frame={frame!r} is not known; use frame="pandas" or "polars", or leave it out')
    if importlib.util.find_spec(frame) is None:
        raise PlanError(f"map_batches: frame={frame!r} needs {frame}, which is not here; pip install {FRAMES[frame]}")
    return partial(MapFrames, frame=frame)


class MapFrames(MapBatches):
    """The operator of a function that takes a DataFrame, and returns a DataFrame, a list of DataFrames, or None.

    Integers and booleans with nulls become the nullable types of pandas, because floats would change large integers. In
    pandas, a NaN becomes a null, because pandas cannot tell them apart.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: pa.Schema,
        sides: Mapping[str, pa.Schema] | None = None,
        *,
        frame: str,
    ) -> None:
        super().__init__(function, schema, sides)
        self._frame = frame

    def _call(self, batch: pa.RecordBatch) -> Any:
        made = _pandas_frame if self._frame == "pandas" else _polars_frame
        return call_user(self._function, made(visible(batch)))

    def _checked(self, part: object, schema: pa.Schema) -> pa.RecordBatch:
        name = function_name(self._function)
        kind = importlib.import_module(self._frame).DataFrame
        if not isinstance(part, kind):
            must = f"a DataFrame of {self._frame}, a list of them or None"
            raise UserFunctionError(f"{name} must return {must}, and returned {shown(part)}")
        frame: Any = part
        columns = [str(column) for column in frame.columns]
        if sorted(columns) != sorted(schema.names):
            raise UserFunctionError(
                f"{name} returned the columns {', '.join(columns)}, and schema= declares {', '.join(schema.names)}"
            )
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False) if self._frame == "pandas" else frame.to_arrow()
        except CONVERSION_ERRORS as error:
            raise UserFunctionError(f"{name} returned a frame that is no table of Arrow: {error}") from None
        arrays = [_as_declared(name, table.column(field.name), field) for field in schema]
        return super()._checked(pa.RecordBatch.from_arrays(arrays, names=schema.names), schema)


def _pandas_frame(batch: pa.RecordBatch) -> Any:
    import pandas as pd

    nullable = {
        pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.bool_(): pd.BooleanDtype(),
    }  # fmt: skip
    with_nulls = {column.type for column in batch.columns if column.null_count}
    return batch.to_pandas(types_mapper=lambda kind: nullable.get(kind) if kind in with_nulls else None)


def _polars_frame(batch: pa.RecordBatch) -> Any:
    import polars as pl

    return pl.from_arrow(batch)


def _as_declared(name: str, column: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Return a column of the function's frame in the declared type.

    Raises UserFunctionError if a value would change.
    """
    wanted, given = plain_type(field.type), plain_type(column.type)
    where = f"{name} returned {given} in column {field.name}, which schema= declares {wanted}"
    if given != wanted and not pa.types.is_null(given) and not any(of(given) and of(wanted) for of in _KINDS):
        raise UserFunctionError(where)
    try:
        return cast(column.cast(given), wanted).combine_chunks()
    except CONVERSION_ERRORS as error:
        raise UserFunctionError(f"{where}: {error}") from None
