"""Casts of whole columns, with the meaning of Spark's `cast` with ANSI off: what cannot be converted becomes null.

A cast with `strict` is Spark's `try_cast`: null also for a number that does not fit, which `cast` changes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.operators.sql.number_kernels import round_floats, to_int64
from headgate.operators.sql.string_kernels import for_each_pair
from headgate.records.canonical import as_arrow, null_mask, raw_values

_INTEGER = r"^\s*(?P<sign>[+-]?)0*(?P<digits>\d*)\s*$"
_WHOLE_OF_DECIMAL = r"^\s*(?P<sign>[+-]?)0*(?P<digits>\d*)(?:\.\d*)?\s*$"
_HAS_DIGIT = r"\d|\."
_FLOAT = r"^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?\s*$"
_SPECIAL = r"(?i)^\s*[+-]?(?:nan|inf|infinity)\s*$"
_DECIMAL = r"^\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*$"
_TRUE = pa.array(["t", "true", "y", "yes", "1"])
_FALSE = pa.array(["f", "false", "n", "no", "0"])
_MOST_DIGITS = 76
_SCIENTIFIC = r"^(?P<number>[+-]?\d*\.?\d*)[eE](?P<exponent>[+-]?\d+)$"
_LONGEST_EXPONENT = 10
#: Beyond these exponents, a number of a few hundred digits is 0 or does not fit.
_EXPONENTS = (-999, 999)
#: The most digits of a decimal that each have a float64 of their own.
_DIGITS_OF_FLOAT = 15


def _kept(keep: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(keep, column, pa.scalar(None, column.type))


def string_to_integer(strings: pa.Array, kind: pa.DataType, strict: bool) -> pa.Array:
    """Return the whole numbers. `cast` cuts a fraction off; for a fraction, `try_cast` returns null."""
    form = _INTEGER if strict else _WHOLE_OF_DECIMAL
    groups = pc.extract_regex(strings, form)
    digits, sign = pc.struct_field(groups, "digits"), pc.struct_field(groups, "sign")
    is_number = pc.and_(pc.is_valid(groups), pc.match_substring_regex(strings, r"\d" if strict else _HAS_DIGIT))
    fits = pc.and_(pc.fill_null(is_number, False), pc.less_equal(pc.fill_null(pc.utf8_length(digits), 99), 19))
    size = pc.if_else(fits, pc.if_else(pc.equal(digits, ""), "0", digits), pa.scalar("0"))
    number = pc.cast(pc.cast(size, pa.uint64()), pa.decimal128(20, 0))
    number = pc.if_else(pc.equal(pc.fill_null(sign, ""), "-"), pc.negate(number), number)
    least, most = _range_of(kind)
    in_range = pc.and_(
        pc.greater_equal(number, pa.scalar(least, pa.decimal128(20, 0))),
        pc.less_equal(number, pa.scalar(most, pa.decimal128(20, 0))),
    )
    return pc.cast(_kept(pc.and_(fits, in_range), number), kind)


def _range_of(kind: pa.DataType) -> tuple[int, int]:
    half = 1 << (kind.bit_width - 1)
    return -half, half - 1


def string_to_float(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    is_number = pc.match_substring_regex(strings, _FLOAT)
    plain = pc.replace_substring_regex(pc.utf8_trim_whitespace(_kept(is_number, strings)), r"^\+|[dDfF]$", "")
    numbers = pc.cast(plain, pa.float64())
    names = pc.utf8_lower(pc.utf8_trim_whitespace(_kept(pc.match_substring_regex(strings, _SPECIAL), strings)))
    special = pc.if_else(pc.match_substring(names, "nan"), float("nan"), float("inf"))
    special = pc.if_else(pc.starts_with(names, "-"), pc.negate(special), special)
    # Spark knows NaN without a sign only.
    special = _kept(pc.invert(pc.match_substring_regex(names, "[+-]nan")), special)
    return pc.cast(pc.coalesce(numbers, special), kind, safe=False)


def string_to_boolean(strings: pa.Array) -> pa.Array:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(strings))
    is_true, is_false = pc.is_in(words, _TRUE), pc.is_in(words, _FALSE)
    return _kept(pc.or_(is_true, is_false), is_true)


def string_to_decimal(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    plain = pc.utf8_trim_whitespace(_kept(pc.match_substring_regex(strings, _DECIMAL), strings))
    has_exponent = pc.fill_null(pc.match_substring_regex(plain, "[eE]"), False)
    if pc.any(has_exponent).as_py():
        plain = pc.if_else(has_exponent, _without_exponents(plain), plain)
    exact = pc.replace_substring_regex(plain, r"^\+", "")
    return _parsed_decimals(pc.replace_substring_regex(exact, r"^(-?)0*(\d)", r"\1\2"), kind)


def _without_exponents(numbers: pa.Array) -> pa.Array:
    """Return numbers such as 12.5e-1 as numbers without an exponent: 1.25. The others become null."""
    parts = pc.extract_regex(numbers, _SCIENTIFIC)
    texts = pc.replace_substring_regex(pc.struct_field(parts, "exponent"), r"^\+", "")
    exponents = pc.cast(_kept(pc.less_equal(pc.utf8_length(texts), _LONGEST_EXPONENT), texts), pa.int64())
    near = pc.max_element_wise(pc.min_element_wise(exponents, _EXPONENTS[1], skip_nulls=False), _EXPONENTS[0],
                               skip_nulls=False)  # fmt: skip
    return for_each_pair(_point_moved, pc.struct_field(parts, "number"), near, near)


def _point_moved(numbers: pa.Array, places: int, _places: int) -> pa.Array:
    """Return numbers whose point is moved to the right by `places`."""
    parts = pc.extract_regex(numbers, r"^(?P<sign>[+-]?)(?P<whole>\d*)\.?(?P<fraction>\d*)$")
    sign, whole, fraction = (pc.struct_field(parts, name) for name in ("sign", "whole", "fraction"))
    if places >= 0:
        fraction = pc.utf8_rpad(fraction, places, "0")
        whole = pc.binary_join_element_wise(whole, pc.utf8_slice_codeunits(fraction, 0, places), "")
        fraction = pc.utf8_slice_codeunits(fraction, places)
    else:
        whole = pc.utf8_lpad(whole, -places, "0")
        fraction = pc.binary_join_element_wise(pc.utf8_slice_codeunits(whole, places), fraction, "")
        whole = pc.utf8_slice_codeunits(whole, 0, places)
    return pc.binary_join_element_wise(sign, pc.binary_join_element_wise(whole, fraction, "."), "")


def _parsed_decimals(strings: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the decimals of plain numbers such as -12.345, rounded half up, or null for a number that does not fit."""
    parts = pc.extract_regex(strings, r"^(?P<sign>-?)(?P<whole>\d*)\.?(?P<fraction>\d*)$")
    fraction = pc.utf8_slice_codeunits(
        pc.utf8_rpad(pc.struct_field(parts, "fraction"), kind.scale + 1, "0"), 0, kind.scale + 1
    )
    whole = pc.struct_field(parts, "whole")
    fits = pc.less_equal(pc.utf8_length(whole), kind.precision - kind.scale)
    if kind.precision + 1 > _MOST_DIGITS:
        fits = pc.less_equal(pc.utf8_length(whole), _MOST_DIGITS - 1 - kind.scale)
    # `digits` are those of the number times ten to the power of scale + 1.
    digits = pc.replace_substring_regex(pc.binary_join_element_wise(whole, fraction, ""), r"^0+(\d)", r"\1")
    units = _from_digits(_kept(fits, digits), kind.scale + 1)
    units = pc.if_else(pc.equal(pc.struct_field(parts, "sign"), "-"), pc.negate(units), units)
    return fitting(pc.round(units, kind.scale, round_mode="half_towards_infinity"), kind)


def _from_digits(digits: pa.Array, scale: int) -> pa.Array:
    """Return strings of digits as decimals of this scale. Older versions of pyarrow cannot cast strings to decimals, so
    each third of at most 19 digits becomes an integer first."""
    text = pc.utf8_lpad(digits, 57, "0")
    total = pa.repeat(pa.scalar(0, pa.decimal256(1, 0)), len(digits))
    for begin in range(0, 57, 19):
        part = pc.cast(pc.utf8_slice_codeunits(text, begin, begin + 19), pa.uint64())
        part = pc.cast(pc.cast(part, pa.decimal128(20, 0)), pa.decimal256(20, 0))
        term = pc.cast(pc.multiply(part, pa.scalar(10 ** (38 - begin), pa.decimal256(39, 0))), pa.decimal256(70, 0))
        total = pc.cast(pc.add(total, term), pa.decimal256(70, 0))
    kind = pa.decimal256(_MOST_DIGITS, scale)
    return pa.Array.from_buffers(kind, len(digits), total.buffers(), offset=total.offset)


def fitting(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimals in another type, rounded half up. A number that does not fit becomes null."""
    wide = pc.cast(column, pa.decimal256(_MOST_DIGITS, column.type.scale))
    if column.type.scale > kind.scale:
        wide = pc.round(wide, kind.scale, round_mode="half_towards_infinity")
    limit = pa.scalar(10 ** (kind.precision - kind.scale), pa.decimal256(kind.precision - kind.scale + 1, 0))
    fits = pc.less(pc.cast(pc.abs(wide), pa.decimal256(_MOST_DIGITS, column.type.scale)), limit)
    return pc.cast(_kept(fits, wide), kind)


def decimal_to_float(column: pa.Array) -> pa.Array:
    """Return the nearest float64. Arrow's own cast is less exact: it makes 99.99000000000001 of 99.99."""
    units = pc.cast(as_units(column), pa.float64())
    return pc.divide(units, 10.0**column.type.scale)


def as_units(column: pa.Array) -> pa.Array:
    """Return decimals in units of their last digit: 1.50 becomes 150."""
    wide = pc.cast(column, pa.decimal256(_MOST_DIGITS, column.type.scale))
    return pa.Array.from_buffers(pa.decimal256(_MOST_DIGITS, 0), len(wide), wide.buffers(), offset=wide.offset)


def float_to_decimal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the decimals of the shortest texts of numbers, as Spark does: 0.1 is 0.1 in any number of digits."""
    values = raw_values(column).astype(np.float64)
    # A rounded value of at most 15 digits is the nearest float64 of its decimal, and Arrow's cast finds this decimal.
    if np.abs(values, where=np.isfinite(values), out=np.zeros(len(values))).max(initial=0.0) >= 10.0 ** (
        _DIGITS_OF_FLOAT - kind.scale
    ):
        return string_to_decimal(pc.cast(pc.cast(column, pa.float64()), pa.string()), kind)
    with np.errstate(all="ignore"):
        rounded = round_floats(values, kind.scale)
        outside = ~np.isfinite(values) | (np.abs(rounded) >= 10.0 ** (kind.precision - kind.scale))
    nulls = null_mask(column)
    nulls = outside if nulls is None else outside | nulls
    return pc.cast(as_arrow(np.where(nulls, 0.0, rounded), nulls), kind)


def float_to_integer(column: pa.Array, kind: pa.DataType, strict: bool) -> pa.Array:
    """Return the whole numbers. `cast` changes a value that does not fit as Java does; `try_cast` returns null."""
    values = raw_values(pc.cast(column, pa.float64()))
    with np.errstate(all="ignore"):
        whole = to_int64(np.trunc(values))
        limit = 2.0 ** (kind.bit_width - 1)
        truncated = np.trunc(values)
        fits = (truncated >= -limit) & (truncated < limit)
    nulls = null_mask(column)
    if strict:
        nulls = ~fits if nulls is None else ~fits | nulls
    if kind.bit_width < 64:
        # As in Java, the nearest int32 comes first, and int8 and int16 are its last bits.
        whole = np.clip(whole, -(2**31), 2**31 - 1)
    return pc.cast(as_arrow(whole, nulls), kind, safe=False)


def integer_to_integer(column: pa.Array, kind: pa.DataType, strict: bool) -> pa.Array:
    """Return the last bits of a number that does not fit, as Java does; `try_cast` returns null."""
    if not strict:
        return pc.cast(column, kind, safe=False)
    least, most = _range_of(kind)
    wide = pa.decimal128(20, 0)
    number = pc.cast(column, wide)
    fits = pc.and_(pc.greater_equal(number, pa.scalar(least, wide)), pc.less_equal(number, pa.scalar(most, wide)))
    return pc.cast(_kept(fits, column), kind)


def decimal_to_integer(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the whole numbers, cut towards zero, or null for a number that does not fit."""
    whole = pc.trunc(pc.cast(column, pa.decimal256(_MOST_DIGITS, column.type.scale)))
    least, most = _range_of(kind)
    limit = pa.decimal256(20, 0)
    fits = pc.and_(pc.greater_equal(whole, pa.scalar(least, limit)), pc.less_equal(whole, pa.scalar(most, limit)))
    return pc.cast(_kept(fits, whole), kind)


def number_to_boolean(column: pa.Array) -> pa.Array:
    return pc.not_equal(column, pa.scalar(0, column.type))


def float_to_string(column: pa.Array) -> pa.Array:
    """Return floats as Java writes them: 1.0, 1.0E10, NaN, Infinity."""
    text = pc.cast(column, pa.string())
    text = pc.replace_substring_regex(text, r"^(-?\d+)$", r"\1.0")
    text = pc.replace_substring_regex(text, r"inf$", "Infinity")
    text = pc.if_else(pc.is_nan(column), "NaN", text)
    size = pc.abs(column)
    is_plain = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(size, 0.0))
    is_plain = pc.or_(is_plain, pc.invert(pc.is_finite(column)))
    exponents = pc.invert(pc.fill_null(is_plain, True))
    if not pc.any(exponents).as_py():
        return text
    return pc.replace_with_mask(text, exponents, _with_exponent(text.filter(exponents)))


def _with_exponent(text: pa.Array) -> pa.Array:
    """Return numbers such as 123.0, 0.00123 and 1.5e+20 with one digit before the point and an exponent."""
    parts = pc.extract_regex(text, r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d*))?(?:e(?P<exponent>[+-]?\d+))?$")
    whole, fraction = pc.struct_field(parts, "whole"), pc.struct_field(parts, "fraction")
    exponent = pc.struct_field(parts, "exponent")
    given = pc.cast(
        pc.replace_substring_regex(pc.if_else(pc.equal(exponent, ""), "0", exponent), r"^\+", ""), pa.int32()
    )
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, "0")
    zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    shift = pc.add(pc.subtract(pc.subtract(pc.utf8_length(whole), 1), zeros), given)
    significant = pc.utf8_rtrim(significant, "0")
    rest = pc.utf8_slice_codeunits(significant, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    first = pc.utf8_slice_codeunits(significant, 0, 1)
    return pc.binary_join_element_wise(
        pc.struct_field(parts, "sign"), first, ".", rest, "E", pc.cast(shift, pa.string()), ""
    )
