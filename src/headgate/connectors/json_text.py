"""Rows as texts of JSON, computed by Arrow column by column."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import PlanError

#: The quote around strings, times and dates.
_QUOTE: Final = '"'
#: Characters that JSON escapes in strings, and their escapes. The backslash comes first, because escapes contain it.
_ESCAPED: Final = (("\\", "\\\\"), ('"', '\\"'))
_CONTROL: Final = r"[\x00-\x1f]"
#: The least byte that is no control character.
_SPACE: Final = 32
_NULL: Final = pa.scalar("null")


def json_texts(batch: pa.RecordBatch) -> pa.Array:
    """Return one JSON object for each row, as strings.

    Numbers keep all their digits, and floats have a point or an exponent. NaN and infinite floats are null, since JSON
    has no such numbers. Times are ISO 8601, with Z if the column has a zone. The schema must pass `check_json_types`.
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
    if _is_container(type_):
        return all(_fits(type_.field(number).type) for number in range(type_.num_fields))
    kinds = (types.is_string, types.is_large_string, types.is_boolean, types.is_integer, types.is_floating,
             types.is_decimal, types.is_date, types.is_time, types.is_timestamp, types.is_null)  # fmt: skip
    return any(kind(type_) for kind in kinds)


def _objects(names: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
    parts: list[Any] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        texts, quote = _within_quotes(column)
        parts += [pa.scalar(f"{before}{json.dumps(name)}: {quote}"), texts]
        before = f"{quote}, "
    if not parts:
        return pa.array(["{}"] * rows, pa.string())
    return pc.binary_join_element_wise(*parts, pa.scalar(before.replace(", ", "}")), "")


def _texts(column: pa.Array) -> pa.Array:
    """Return the JSON texts of the values. Nulls become `null`."""
    texts, quote = _within_quotes(column)
    return _quoted(texts) if quote else texts


def _within_quotes(column: pa.Array) -> tuple[pa.Array, str]:
    """Return the JSON texts of the values, and the quote that is still missing before and after each of them."""
    if pa.types.is_dictionary(column.type):
        return _within_quotes(column.cast(column.type.value_type))
    if pa.types.is_null(column.type):
        return pa.array(["null"] * len(column), pa.string()), ""
    texts, quote = (_containers(column), "") if _is_container(column.type) else _scalars(column)
    if column.null_count or texts.null_count:
        texts = _quoted(texts) if quote else texts
        return pc.if_else(column.is_valid(), texts, _NULL).fill_null("null"), ""
    return texts, quote


def _is_container(type_: pa.DataType) -> bool:
    return bool(pa.types.is_struct(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _containers(column: pa.Array) -> pa.Array:
    """Return the texts of lists and structs. Those of nulls are of no use."""
    if not pa.types.is_struct(column.type):
        return _lists(column)
    fields = [pc.struct_field(column, [number]) for number in range(column.type.num_fields)]
    return _objects([field.name for field in column.type], fields, len(column))


def _scalars(column: pa.Array) -> tuple[pa.Array, str]:
    """Return the texts of values that contain no others, with nulls, and the quote around each."""
    type_ = column.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return _escaped(column.cast(pa.string())), _QUOTE
    if pa.types.is_timestamp(type_):
        plain = column.cast(pa.timestamp(type_.unit)).cast(pa.string())
        iso = pc.replace_substring(plain, " ", "T", max_replacements=1)
        return (iso if type_.tz is None else pc.binary_join_element_wise(iso, pa.scalar("Z"), "")), _QUOTE
    if pa.types.is_date(type_) or pa.types.is_time(type_):
        return column.cast(pa.string()), _QUOTE
    if pa.types.is_floating(type_):
        return _floats(column.cast(pa.float64()) if pa.types.is_float16(type_) else column), ""
    return column.cast(pa.string()), ""


def _floats(column: pa.Array) -> pa.Array:
    """Return the texts of floats, and null for NaN and infinite ones. Arrow's text of 3.0 is "3", which a reader would
    take for a whole number."""
    text, is_finite = column.cast(pa.string()), pc.is_finite(column)
    if not pc.all(is_finite, min_count=0).as_py():
        text = pc.if_else(is_finite, text, pa.scalar(None, pa.string()))
    is_whole = pc.equal(pc.floor(column), column)
    if not pc.any(is_whole).as_py():
        return text
    has_no_point = pc.and_(is_whole, pc.invert(pc.match_substring(text, "e")))
    return pc.if_else(has_no_point, pc.binary_join_element_wise(text, pa.scalar(".0"), ""), text)


def _quoted(text: pa.Array) -> pa.Array:
    quote = pa.scalar(_QUOTE)
    return pc.binary_join_element_wise(quote, text, quote, "")


def _escaped(text: pa.Array) -> pa.Array:
    if not _has_special(text):
        return text
    for plain, escaped in _ESCAPED:
        text = pc.replace_substring(text, plain, escaped)
    if pc.any(pc.match_substring_regex(text, _CONTROL)).as_py():
        for code in range(32):
            text = pc.replace_substring(text, chr(code), json.dumps(chr(code))[1:-1])
    return text


def _has_special(text: pa.Array) -> bool:
    """Return whether a character must be escaped. Bytes of other characters than ASCII are above 127."""
    _, offsets, data = text.buffers()
    if data is None:
        return False
    begin, end = np.frombuffer(offsets, np.int32)[[text.offset, text.offset + len(text)]]
    characters = np.frombuffer(data, np.uint8)[begin:end]
    special = (characters < _SPACE) | (characters == ord(_QUOTE)) | (characters == ord("\\"))
    return bool(special.any())


def _lists(column: pa.Array) -> pa.Array:
    lengths = pc.list_value_length(column).fill_null(0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    values = pa.ListArray.from_arrays(offsets, _texts(column.flatten()))
    return pc.binary_join_element_wise(pa.scalar("["), pc.binary_join(values, ", "), pa.scalar("]"), "")
