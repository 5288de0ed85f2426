"""Rows as texts of JSON, computed by Arrow column by column."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PlanError

#: Characters that JSON escapes in strings, and their escapes. The backslash comes first, because escapes contain it.
_ESCAPED: Final = (("\\", "\\\\"), ('"', '\\"'))
_CONTROL: Final = r"[\x00-\x1f]"
_NULL: Final = pa.scalar("null")


def json_texts(batch: pa.RecordBatch) -> pa.Array:
    """Return one JSON object for each row, as strings.

    Numbers keep all their digits; NaN and infinite floats are null, since JSON has no such numbers. Times are ISO 8601,
    with Z if the column has a zone. The schema must pass `check_json_types`.
    """
    return _objects(batch.schema.names, batch.columns, batch.num_rows)


def check_json_types(schema: pa.Schema) -> None:
    """Raise PlanError for a column that JSON cannot hold."""
    for field in schema:
        if not _fits(field.type):
            raise PlanError(
                f"column {field.name!r} is {field.type}, which JSON cannot hold; cast it with select(...) or drop it"
            )


def _fits(type_: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(type_):
        return _fits(type_.value_type)
    if types.is_list(type_) or types.is_large_list(type_):
        return _fits(type_.value_type)
    if types.is_struct(type_):
        return all(_fits(field.type) for field in type_)
    kinds = (types.is_string, types.is_large_string, types.is_boolean, types.is_integer, types.is_floating,
             types.is_decimal, types.is_date, types.is_time, types.is_timestamp, types.is_null)  # fmt: skip
    return any(kind(type_) for kind in kinds)


def _objects(names: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [pa.scalar(f"{', ' if number else '{'}{json.dumps(name)}: "), _texts(column)]
    if not parts:
        return pa.array(["{}"] * rows, pa.string())
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), "")


def _texts(column: pa.Array) -> pa.Array:
    """Return the JSON texts of the values. Nulls become `null`."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _texts(column.cast(type_.value_type))
    if pa.types.is_null(type_):
        return pa.array(["null"] * len(column), pa.string())
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        text = _lists(column)
    elif pa.types.is_struct(type_):
        fields = [pc.struct_field(column, [number]) for number in range(type_.num_fields)]
        text = _objects([field.name for field in type_], fields, len(column))
    elif pa.types.is_string(type_) or pa.types.is_large_string(type_):
        text = _quoted(_escaped(column.cast(pa.string())))
    elif pa.types.is_timestamp(type_):
        plain = column.cast(pa.timestamp(type_.unit)).cast(pa.string())
        iso = pc.replace_substring(plain, " ", "T", max_replacements=1)
        text = _quoted(iso if type_.tz is None else pc.binary_join_element_wise(iso, pa.scalar("Z"), ""))
    elif pa.types.is_date(type_) or pa.types.is_time(type_):
        text = _quoted(column.cast(pa.string()))
    elif pa.types.is_floating(type_):
        wide = column.cast(pa.float64()) if pa.types.is_float16(type_) else column
        text = pc.if_else(pc.is_finite(wide), wide.cast(pa.string()), pa.scalar(None, pa.string()))
    else:
        text = column.cast(pa.string())
    return pc.if_else(column.is_valid(), text, _NULL).fill_null("null")


def _quoted(text: pa.Array) -> pa.Array:
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, text, quote, "")


def _escaped(text: pa.Array) -> pa.Array:
    for plain, escaped in _ESCAPED:
        text = pc.replace_substring(text, plain, escaped)
    if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
        for code in range(32):
            text = pc.replace_substring(text, chr(code), json.dumps(chr(code))[1:-1])
    return text


def _lists(column: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(column).fill_null(0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    values = pa.ListArray.from_arrays(offsets, _texts(column.flatten()))
    return pc.binary_join_element_wise(pa.scalar("["), pc.binary_join(values, ", "), pa.scalar("]"), "")
