"""Computes the result types of arithmetic on decimals, by the rules of Spark SQL.

Source: org.apache.spark.sql.catalyst.expressions, BinaryArithmetic and aggregate.Sum and Average, with the default of
`spark.sql.decimalOperations.allowPrecisionLoss`. Spark has no decimal256. Here decimal256 follows the same rules, with
76 digits instead of 38.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

_MORE_DIGITS_OF_SUM: Final = 10
_MORE_DIGITS_OF_MEAN: Final = 4
#: A result with too many digits loses digits after the point, but keeps at least this many of them.
_LEAST_SCALE: Final = 6
_MOST_OF_128: Final = 38
_MOST_OF_256: Final = 76
#: The most decimal digits that an integer can have, by its width in bits.
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a sum of decimals of type `kind`: it has ten more digits before the point."""
    make, most = family(kind)
    return make(min(most, kind.precision + _MORE_DIGITS_OF_SUM), kind.scale)


def mean_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a mean of decimals of type `kind`: it has four more digits after the point."""
    make, most = family(kind)
    more = _MORE_DIGITS_OF_MEAN
    return make(min(most, kind.precision + more), min(most, kind.scale + more))


def arithmetic_type(kernel: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the result type of `add`, `subtract`, `multiply`, `divide` or `remainder` of two decimals.

    A result with too many digits loses digits after the point, but keeps the first six of these digits.
    """
    make, most = family(left, right)
    before, behind = _digits(kernel, left, right)
    if before + behind > most:
        behind = max(most - before, min(behind, _LEAST_SCALE))
        before = most - behind
    return make(before + behind, behind)


def _digits(kernel: str, left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """Return how many digits the result has before and after the point. For a quotient, this is the number that Spark
    SQL gives it; for the other operators, the result is exact."""
    left_whole, right_whole = left.precision - left.scale, right.precision - right.scale
    match kernel:
        case "multiply":
            scale = left.scale + right.scale
            return left.precision + right.precision + 1 - scale, scale
        case "divide":
            return left_whole + right.scale, max(_LEAST_SCALE, left.scale + right.precision + 1)
        case "remainder":
            return min(left_whole, right_whole), max(left.scale, right.scale)
        case _:
            return max(left_whole, right_whole) + 1, max(left.scale, right.scale)


def common_decimal(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the decimal type in which values of all these decimal and integer types can be compared exactly.

    Returns None if 76 digits are too few.
    """
    decimals = [as_decimal(kind) for kind in kinds]
    scale = max(kind.scale for kind in decimals)
    precision = scale + max(kind.precision - kind.scale for kind in decimals)
    if precision > _MOST_OF_256:
        return None
    return (pa.decimal256 if precision > _MOST_OF_128 else pa.decimal128)(precision, scale)


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """Return the decimal type that Spark uses for an integer type. Return a decimal type unchanged."""
    return pa.decimal128(_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else kind


def literal_type(value: Decimal) -> pa.DataType:
    """Return the decimal type of a number as the user wrote it: 1.50 is decimal(3, 2), 0.05 is decimal(2, 2), and 1e2
    is decimal(3, 0)."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale)
    return (pa.decimal256 if precision > _MOST_OF_128 else pa.decimal128)(precision, scale)


def family(*kinds: pa.DataType) -> tuple[Any, int]:
    """Return the constructor of the decimal type of a result, and the most digits of this type. The operands have the
    types `kinds`."""
    wide = any(map(pa.types.is_decimal256, kinds))
    return (pa.decimal256, _MOST_OF_256) if wide else (pa.decimal128, _MOST_OF_128)
