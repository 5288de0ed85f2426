"""The types that `cast` knows, and the node of each cast."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql import cast_kernels as kernels
from headgate.operators.sql.sql_calls import Apply
from headgate.operators.sql.sql_eval import Cast, Literal, SqlNode
from headgate.operators.sql.sql_types import kind_of, value_type
from headgate.operators.sql.time_kernels import floor_div, from_number
from headgate.operators.sql.time_text import format_timestamps, parse_dates, parse_timestamps

Kernel = Callable[..., pa.Array]

_TYPES = {
    pa.int8(): ("tinyint", "byte"),
    pa.int16(): ("smallint", "short"),
    pa.int32(): ("int", "integer"),
    pa.int64(): ("bigint", "long"),
    pa.float32(): ("float", "real"),
    pa.float64(): ("double",),
    pa.decimal128(10, 0): ("decimal", "dec", "numeric"),
    pa.string(): ("string", "varchar", "text"),
    pa.bool_(): ("boolean",),
    pa.date32(): ("date",),
    pa.timestamp("us", "UTC"): ("timestamp", "timestamp_ltz"),
    pa.timestamp("us"): ("timestamp_ntz",),
}
_NAMED = {name: data_type for data_type, names in _TYPES.items() for name in names}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_SECOND = 1_000_000


def named_type(text: str) -> pa.DataType | None:
    """Return the type that a SQL type such as `decimal(9, 2)` names, or None if there is none."""
    name = text.strip().lower()
    sizes = _DECIMAL.fullmatch(name)
    if sizes is None:
        return _NAMED.get(name)
    precision, scale = int(sizes[1]), int(sizes[2] or 0)
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None


def cast_node(node: SqlNode, target: pa.DataType, *, strict: bool) -> SqlNode | None:
    """Return the node of a cast, or None if there is no cast between the two types."""
    source = value_type(node.type)
    if source.equals(target) or pa.types.is_null(source):
        return Literal(None, target) if pa.types.is_null(source) else _without_exact(_plain(node, source))
    pair = (_kind(source), _kind(target))
    if pair in _PLAIN:
        return Cast(node, target, False)
    kernel = _kernel(pair, target, strict)
    return None if kernel is None else Apply(kernel, (_input(node, source),), target)


def _without_exact(node: SqlNode) -> SqlNode:
    """Return the node. If it is a literal that the user cast to float64, such as 1.0D, remove its exact decimal."""
    return Literal(node.value, node.type) if isinstance(node, Literal) else node


def _plain(node: SqlNode, kind: pa.DataType) -> SqlNode:
    return node if node.type.equals(kind) else Cast(node, kind)


def _kind(data_type: pa.DataType) -> str:
    return "date" if pa.types.is_date(data_type) else kind_of(data_type)


def _input(node: SqlNode, source: pa.DataType) -> SqlNode:
    """Return the operand in the type that the kernels take."""
    kind = _kind(source)
    wanted = {"float": pa.float64(), "string": pa.string(), "timestamp": pa.timestamp("us"), "date": pa.date32()}
    return (
        _plain(node, source) if kind not in wanted or source.equals(wanted[kind]) else Cast(node, wanted[kind], False)
    )


def _kernel(pair: tuple[str, str], target: pa.DataType, strict: bool) -> Kernel | None:
    match pair:
        case ("string", "integer"):
            return partial(kernels.string_to_integer, kind=target, strict=strict)
        case ("integer", "integer"):
            return partial(kernels.integer_to_integer, kind=target, strict=strict)
        case ("float", "integer"):
            return partial(kernels.float_to_integer, kind=target, strict=strict)
        case ("decimal", "integer"):
            return partial(kernels.decimal_to_integer, kind=target)
        case ("string", "float"):
            return partial(kernels.string_to_float, kind=target)
        case ("string", "decimal"):
            return partial(kernels.string_to_decimal, kind=target)
        case ("integer" | "decimal", "decimal"):
            return partial(_to_decimal, kind=target)
        case ("decimal", "float"):
            return kernels.decimal_to_float
        case ("float", "decimal"):
            return partial(kernels.float_to_decimal, kind=target)
        case ("boolean", "decimal"):
            return partial(_boolean_to_decimal, kind=target)
        case ("timestamp", "integer"):
            return partial(_seconds, kind=target)
        case _:
            return _OTHERS.get(pair)


def _to_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    column = pc.cast(column, pa.decimal128(20, 0)) if pa.types.is_integer(column.type) else column
    return kernels.fitting(column, kind)


def _boolean_to_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return _to_decimal(pc.cast(column, pa.int8()), kind)


def _seconds(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return pc.cast(floor_div(column, _SECOND), kind, safe=False)


def _exact_seconds(column: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(pc.cast(column, pa.int64()), pa.float64()), float(_SECOND))


def _float_to_timestamp(column: pa.Array) -> pa.Array:
    finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    return pc.cast(kernels.float_to_integer(pc.multiply(finite, float(_SECOND)), pa.int64(), False), pa.timestamp("us"))


def _decimal_to_string(column: pa.Array) -> pa.Array:
    """Return decimals as text, without an exponent: Arrow writes small ones as 1E-7."""
    scale = column.type.scale
    units = pc.cast(kernels.as_units(column), pa.string())
    sign = pc.if_else(pc.starts_with(units, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(units, "-"), scale + 1, "0")
    if not scale:
        return units
    whole, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


_PLAIN = {
    *(("integer", "float"), ("boolean", "integer"), ("boolean", "float"), ("float", "float")),
    *(("date", "timestamp"), ("timestamp", "date"), ("timestamp", "timestamp"), ("string", "string")),
    *(("integer", "string"), ("boolean", "string"), ("date", "string")),
}
_OTHERS: dict[tuple[str, str], Kernel] = {
    ("string", "boolean"): kernels.string_to_boolean,
    ("integer", "boolean"): kernels.number_to_boolean,
    ("float", "boolean"): kernels.number_to_boolean,
    ("decimal", "boolean"): kernels.number_to_boolean,
    ("float", "string"): kernels.float_to_string,
    ("decimal", "string"): _decimal_to_string,
    ("string", "date"): parse_dates,
    ("string", "timestamp"): parse_timestamps,
    ("timestamp", "string"): format_timestamps,
    ("timestamp", "float"): _exact_seconds,
    ("integer", "timestamp"): partial(from_number, scale=_SECOND),
    ("float", "timestamp"): _float_to_timestamp,
}
