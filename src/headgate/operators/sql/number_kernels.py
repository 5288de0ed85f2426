"""Functions of whole columns of numbers, with the meaning of Spark SQL where Arrow's own kernels differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.records.canonical import as_arrow, null_mask, raw_values

Floats = npt.NDArray[np.float64]

#: A float of at least this size has no digits after the point.
_NO_FRACTION: Final = 2.0**52
_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_MOST_DIGITS: Final = 76


def of_numbers(function: Callable[..., npt.NDArray[Any]], *columns: pa.Array) -> pa.Array:
    """Call a NumPy function with the values of numeric columns. A null in a column gives null."""
    masks = [mask for mask in map(null_mask, columns) if mask is not None]
    with np.errstate(all="ignore"):
        values = function(*(raw_values(column) for column in columns))
    return as_arrow(values, np.logical_or.reduce(masks) if masks else None)


def angle(y: Floats, x: Floats) -> Floats:
    """Return the angle of the points (x, y). As in Spark, -0.0 counts as 0.0."""
    return np.arctan2(y + 0.0, x + 0.0)


def log(function: Callable[[Floats], Floats], column: pa.Array) -> pa.Array:
    """Return a logarithm. As in Spark, a number that is not positive gives null."""
    positive = pc.or_(pc.greater(column, 0.0), pc.is_nan(column))
    return of_numbers(function, pc.if_else(positive, column, pa.scalar(None, column.type)))


def log2(values: Floats) -> Floats:
    """Return the logarithm to the base 2. As in Spark, it is the quotient of two logarithms, so it equals log(2, x)."""
    quotients: Floats = np.log(values) / np.log(2.0)
    return quotients


def log_of_base(base: pa.Array, column: pa.Array) -> pa.Array:
    base, column = log(np.log, base), log(np.log, column)
    return of_numbers(np.divide, column, base)


def power(base: Floats, exponent: Floats) -> Floats:
    """Return `base ** exponent`. As in Java, an exponent of NaN gives NaN, and so does 1 or -1 to an infinite power."""
    unknown = np.isnan(exponent) | ((np.abs(base) == 1.0) & np.isinf(exponent))
    return np.where(unknown, np.nan, np.power(base, exponent))


def round_floats(values: Floats, digits: int) -> Floats:
    """Round half away from zero, as if the shortest decimal text of each number were rounded.

    2.675 becomes 2.68, although the float64 is slightly less than 2.675.
    """
    if digits > 300:
        return values
    if digits < -308:
        return np.where(np.isfinite(values), np.copysign(0.0, values), values)
    size = np.abs(values)
    if digits < 0:
        step = 10.0**-digits
        rounded = np.floor(size / step + 0.5) * step
    else:
        step = 10.0**digits
        below = np.floor(size * step)
        # A division of whole numbers is exact to the last bit: `half` is the float64 of the decimal number that lies
        # in the middle.
        half = (below + 0.5) / step
        rounded = np.where(size >= half, below + 1, below) / step
        rounded = np.where(size * step >= _NO_FRACTION, size, rounded)
    return np.where(np.isfinite(values), np.copysign(rounded, values), values)


def round_integers(column: pa.Array, digits: int) -> pa.Array:
    """Round to tens, hundreds and so on: `digits` is negative."""
    values = pc.cast(column, pa.decimal128(38, 0))
    step = pa.decimal128(38, 0)
    if digits < -19:
        return pc.if_else(pc.is_valid(column), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    rounded = pc.round(values, digits, round_mode="half_towards_infinity")
    return pc.cast(pc.cast(rounded, step), pa.int64())


def round_decimals(column: pa.Array, digits: int, kind: pa.DataType, mode: str) -> pa.Array:
    """Round decimals to `digits` digits after the point, into the type `kind`."""
    wide = pc.cast(column, pa.decimal256(_MOST_DIGITS, column.type.scale))
    return pc.cast(pc.round(wide, digits, round_mode=mode), kind)


def to_int64(values: Floats) -> npt.NDArray[np.int64]:
    """Return floats without their fractions. As in Java, NaN becomes 0, and a value beyond int64 the nearest int64."""
    result = np.where(np.isnan(values), 0.0, values)
    inside = np.clip(result, float(_LEAST), 9.2e18).astype(np.int64)
    # Between 9.2e18 and 2**63, the clip has changed the value.
    large = (result > 9.2e18) & (result < 2.0**63)
    inside = np.where(large, np.where(large, result, 0.0).astype(np.int64), inside)
    return np.where(result >= 2.0**63, _MOST, inside)


def floor(values: Floats) -> npt.NDArray[np.int64]:
    return to_int64(np.floor(values))


def ceil(values: Floats) -> npt.NDArray[np.int64]:
    return to_int64(np.ceil(values))


def positive_remainder(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    """Return the remainder; to a negative remainder, add the divisor. A divisor of zero gives null."""
    divisor = pc.if_else(pc.equal(divisor, 0), pa.scalar(None, divisor.type), divisor)

    def remainder(values: npt.NDArray[Any], divisors: npt.NDArray[Any]) -> npt.NDArray[Any]:
        rest = np.fmod(values, np.where(divisors == 0, 1, divisors))
        wrapped: npt.NDArray[Any] = np.fmod(rest + divisors, np.where(divisors == 0, 1, divisors))
        return np.where(rest < 0, wrapped, rest)

    return of_numbers(remainder, dividend, divisor)


def extreme(greatest: bool, *columns: pa.Array) -> pa.Array:
    """Return the greatest or least of the values that are not null. NaN is greater than any number."""
    kernel = pc.max_element_wise if greatest else pc.min_element_wise
    if pa.types.is_boolean(columns[0].type):  # Arrow has no such kernel for booleans
        bits = (pc.cast(column, pa.uint8()) for column in columns)
        return pc.cast(kernel(*bits, skip_nulls=True), pa.bool_())
    if pa.types.is_timestamp(columns[0].type):  # Arrow has no such kernel for times with a zone
        columns = tuple(pc.cast(column, pa.timestamp(column.type.unit)) for column in columns)
    result = kernel(*columns, skip_nulls=True)
    if not pa.types.is_floating(result.type):
        return result
    nan = pa.scalar(float("nan"), result.type)
    is_nan = [pc.fill_null(pc.is_nan(column), not greatest) for column in columns]
    chosen = is_nan[0]
    for other in is_nan[1:]:
        chosen = pc.or_(chosen, other) if greatest else pc.and_(chosen, other)
    return pc.if_else(pc.and_(chosen, pc.is_valid(result)), nan, result)
