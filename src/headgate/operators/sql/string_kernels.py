"""Functions of whole columns of strings, with the meaning of Spark SQL. Positions count characters from 1."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.records.canonical import as_arrow, null_mask, raw_values

_NULL = pa.scalar(None, pa.string())
#: No string has so many characters.
_FAR: Final = 1 << 31
#: Group 1 is the beginning of a group in a regular expression. Quoted and escaped texts and sets of characters have
#: none.
_GROUPS: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:.*?:\]|[^\]\\])*\]|(\((?:\?P?<\w+>|(?!\?)))", re.DOTALL
)


def substring(strings: pa.Array, start: pa.Array, length: pa.Array) -> pa.Array:
    """Return `length` characters from position `start`. A negative position counts from the end."""
    return for_each_pair(_substring, strings, start, length)


def _substring(strings: pa.Array, start: int, length: int) -> pa.Array:
    if length <= 0:
        return _everywhere(strings, "")
    begin = start - 1 if start > 0 else start
    end = begin + length
    return pc.utf8_slice_codeunits(strings, _near(begin), None if begin < 0 <= end else _near(end))


def _near(position: int) -> int:
    """Return a position that Arrow can count with."""
    return max(-_FAR, min(position, _FAR))


def for_each_pair(
    function: Callable[[pa.Array, int, int], pa.Array], strings: pa.Array, first: pa.Array, second: pa.Array
) -> pa.Array:
    """Call the function once for each distinct pair of numbers, with the strings that have this pair."""
    masks = [mask for mask in map(null_mask, (strings, first, second)) if mask is not None]
    numbers = np.stack([raw_values(column) for column in (first, second)], axis=1).astype(np.int64)
    pairs, which = np.unique(numbers, axis=0, return_inverse=True)
    which = which.reshape(-1)
    if len(pairs) == 1:
        result = function(strings, *map(int, pairs[0]))
    else:
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which, minlength=len(pairs)))
        ordered = strings.take(as_arrow(order))
        pieces, begin = [ordered.slice(0, 0)], 0
        for pair, end in zip(pairs.tolist(), ends.tolist(), strict=True):
            pieces.append(function(ordered.slice(begin, end - begin), *pair))
            begin = end
        result = pa.concat_arrays(pieces).take(as_arrow(np.argsort(order, kind="stable")))
    return pc.if_else(as_arrow(np.logical_or.reduce(masks)), _null(result), result) if masks else result


def right(strings: pa.Array, length: pa.Array) -> pa.Array:
    """Return the last `length` characters."""
    size = pc.fill_null(pc.min_element_wise(length, pc.cast(pc.utf8_length(strings), length.type)), 0)
    start = pc.if_else(pc.is_valid(length), pc.negate(size), pa.scalar(None, length.type))
    return substring(strings, start, size)


def position(strings: pa.Array, wanted: str) -> pa.Array:
    """Return where `wanted` first begins, or 0."""
    if not wanted:
        return _everywhere(strings, 1, pa.int64())
    parts = pc.split_pattern(strings, wanted, max_splits=1)
    before = pc.cast(pc.utf8_length(pc.list_element(parts, 0)), pa.int64())
    found = pc.greater(pc.list_value_length(parts), 1)
    return pc.if_else(found, pc.add(before, 1), pa.scalar(0, pa.int64()))


def split_part(strings: pa.Array, delimiter: str, number: int) -> pa.Array:
    """Split each string at the delimiter, and return the part with this number, or '' if there is no such part.

    Parts are counted from 1, or with a negative number from -1 at the end. A null gives null.
    """
    if not delimiter:
        return strings if number in (1, -1) else _everywhere(strings, "")
    parts = pc.split_pattern(strings, delimiter)
    counts = raw_values(pc.fill_null(pc.list_value_length(parts), 0)).astype(np.int64)
    places = np.cumsum(counts) - counts + (number - 1 if number > 0 else counts + number)
    missing = counts < abs(number)
    found = parts.flatten().take(as_arrow(np.where(missing, 0, places), nulls=missing))
    return pc.if_else(pc.is_valid(strings), pc.fill_null(found, ""), _null(found))


def pad(strings: pa.Array, length: int, padding: str, is_left: bool) -> pa.Array:
    """Add characters until there are `length`. A longer string is cut."""
    if length <= 0:
        return _everywhere(strings, "")
    # Row i of this table is the padding with i characters.
    filled = (padding * length)[:length]
    table = pa.array([filled[:count] for count in range(length + 1)], strings.type)
    needed = pc.max_element_wise(pc.subtract(length, pc.utf8_length(strings)), 0)
    added = table.take(needed)
    pair = (added, strings) if is_left else (strings, added)
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*pair, ""), 0, length)


def repeat(strings: pa.Array, times: pa.Array) -> pa.Array:
    return pc.binary_repeat(strings, pc.max_element_wise(times, 0, skip_nulls=False))


def concat(*strings: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*strings, "")


def concat_with(separator: pa.Array, *strings: pa.Array) -> pa.Array:
    """Join the strings that are not null."""
    # Arrow returns no row at all for a row without a string.
    first = pc.if_else(pc.is_null(pc.coalesce(*strings)), "", strings[0])
    strings = (first, *strings[1:])
    joined = pc.binary_join_element_wise(*strings, pc.fill_null(separator, ""), null_handling="skip")
    return pc.if_else(pc.is_valid(separator), joined, _null(joined))


def replace(strings: pa.Array, search: str, replacement: str) -> pa.Array:
    return pc.replace_substring(strings, search, replacement) if search else strings


def named_groups(pattern: str) -> tuple[str, int]:
    """Name the groups of a regular expression of RE2 by their numbers, as `extract` wants it. Return it and the number
    of groups.

    >>> named_groups("(a|b)c")
    ('(?P<g0>(?P<g1>a|b)c)', 1)
    """
    numbers = count(1)
    named = _GROUPS.sub(lambda found: f"(?P<g{next(numbers)}>" if found[1] else found[0], pattern)
    return f"(?P<g0>{named})", next(numbers) - 1


def extract(strings: pa.Array, pattern: str, group: int) -> pa.Array:
    """Return a group of the first match, or '' without a match. `pattern` is a result of `named_groups`."""
    found = pc.struct_field(pc.extract_regex(strings, pattern), f"g{group}")
    return pc.if_else(pc.is_valid(strings), pc.fill_null(found, ""), _null(found))


def _everywhere(strings: pa.Array, value: object, kind: pa.DataType | None = None) -> pa.Array:
    """Return `value` for each string, and null for null."""
    kind = kind or strings.type
    return pc.if_else(pc.is_valid(strings), pa.scalar(value, kind), pa.scalar(None, kind))


def _null(strings: pa.Array) -> pa.Scalar:
    return pa.scalar(None, strings.type)
