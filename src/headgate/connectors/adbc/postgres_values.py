"""Values that the driver for PostgreSQL would change in silence, since the other side has no type for them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import SourceError

#: The type that holds all values of uint64.
_UINT64: Final = pa.decimal128(20, 0)
#: The first day of PostgreSQL, in the year 4714 BC. The driver adds 30 years to the largest number, which PostgreSQL
#: has for infinity, so that it wraps around, and lies before this day. Minus infinity lies there too.
_FIRST_DAY: Final = -2_440_588
_FIRST_MICROSECOND: Final = _FIRST_DAY * 86_400_000_000


def without_uint64(rows: pa.Table) -> pa.Table:
    """Return the rows with decimals for uint64: the driver would wrap large values to negative ones."""
    types = [_without_uint64(type_) for type_ in rows.schema.types]
    if types == rows.schema.types:
        return rows
    return rows.cast(pa.schema([field.with_type(type_) for field, type_ in zip(rows.schema, types, strict=True)]))


def _without_uint64(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_UINT64) if pa.types.is_uint64(type_.value_type) else type_
    return _UINT64 if pa.types.is_uint64(type_) else type_


def refuse_infinity(rows: pa.Table, what: str) -> None:
    """Raise SourceError for a date or time that Arrow does not have, for which the driver returns one BC."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if _has_infinity(column):
            kind = "date" if pa.types.is_date32(_item_type(column.type)) else "timestamp"
            raise SourceError(
                f"{what}: column {name!r} has a {kind} that Arrow does not have: infinity, or a time after the year "
                "294246; make it null in a query, such as: "
                f"select nullif(nullif({name}, 'infinity'), '-infinity') as {name}"
            )


def _item_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_list(type_) else type_


def _has_infinity(column: pa.ChunkedArray) -> bool:
    type_ = _item_type(column.type)
    if pa.types.is_date32(type_):
        number, first = pa.int32(), _FIRST_DAY
    elif pa.types.is_timestamp(type_) and type_.unit == "us":
        number, first = pa.int64(), _FIRST_MICROSECOND
    else:
        return False
    values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    lowest = pc.min(values.cast(number)).as_py()
    return lowest is not None and bool(lowest < first)
