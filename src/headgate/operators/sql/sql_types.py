"""The types that SQL strings can compute with, and the common type of several operands."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headgate.operators.decimal_types import as_decimal, common_decimal

_UNITS = ("s", "ms", "us", "ns")


def kind_of(data_type: pa.DataType) -> str:
    """Return the kind of a type: "null", "boolean", "integer", "decimal", "float", "string", "timestamp",
    "interval" (a length of time) or "months".

    For any other type, return the type's name. A SQL expression can return such a column, but cannot
    compute with it.
    """
    types = pa.types
    if types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    if types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type):
        return "string"
    if types.is_timestamp(data_type) or types.is_date(data_type):
        return "timestamp"
    for kind, test in (
        ("null", types.is_null),
        ("boolean", types.is_boolean),
        ("integer", types.is_integer),
        ("decimal", types.is_decimal),
        ("float", types.is_floating),
        ("interval", types.is_duration),
        ("months", types.is_interval),
    ):
        if test(data_type):
            return kind
    return str(data_type)


def value_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values, or else the type itself."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def alternatives_type(data_types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type of a value that is one of several, such as those of `case`. Return None if there is no such
    type."""
    kinds = [value_type(data_type) for data_type in data_types if not pa.types.is_null(data_type)]
    if not kinds:
        return pa.null()
    if all(kind.equals(kinds[0]) for kind in kinds):
        return kinds[0]
    if {kind_of(kind) for kind in kinds} != {"timestamp"}:
        return common_type(kinds)
    zones = {kind.tz for kind in kinds if pa.types.is_timestamp(kind)}
    units = [kind.unit for kind in kinds if pa.types.is_timestamp(kind)]
    return pa.timestamp(max(units, key=_UNITS.index), zones.pop() if len(zones) == 1 else "UTC")


def common_type(data_types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type in which values of these types are compared, or None if they cannot be compared."""
    data_types = [value_type(data_type) for data_type in data_types]
    kinds = {kind_of(data_type) for data_type in data_types} - {"null"}
    if kinds <= {"boolean"}:
        return pa.bool_()
    if kinds == {"integer"}:
        return _common_integer(data_types)
    if "decimal" in kinds and kinds <= {"integer", "decimal"}:
        return common_decimal([data_type for data_type in data_types if not pa.types.is_null(data_type)])
    if kinds <= {"integer", "decimal", "float"}:
        return pa.float64()
    if kinds == {"string"}:
        return pa.large_string() if any(map(pa.types.is_large_string, data_types)) else pa.string()
    if kinds == {"interval"}:
        return pa.duration("us")
    if kinds == {"timestamp"}:
        # Arrow stores every timestamp in UTC, with a zone or without. A type without a zone therefore compares
        # instants.
        units = [data_type.unit for data_type in data_types if pa.types.is_timestamp(data_type)]
        if not units:
            return pa.date32()
        return pa.timestamp(max(units, key=_UNITS.index, default="s"))
    return None


def comparable_decimals(data_types: Sequence[pa.DataType]) -> list[pa.DataType] | None:
    """Return a decimal type for each of these types, in which `CompareDecimals` compares the values.

    Returns None if a type is neither a decimal nor an integer. A null gets the narrowest decimal.
    """
    if not {kind_of(data_type) for data_type in data_types} <= {"null", "integer", "decimal"}:
        return None
    data_types = [value_type(data_type) for data_type in data_types]
    return [pa.decimal128(1, 0) if pa.types.is_null(each) else as_decimal(each) for each in data_types]


def _common_integer(data_types: Sequence[pa.DataType]) -> pa.DataType:
    unsigned = [pa.types.is_uint64(data_type) for data_type in data_types if not pa.types.is_null(data_type)]
    if not any(unsigned):
        return pa.int64()
    return pa.uint64() if all(unsigned) else pa.decimal128(20, 0)
