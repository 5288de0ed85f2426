"""The types of what is computed from decimals, which are Spark SQL's, with its option
`spark.sql.decimalOperations.allowPrecisionLoss` as it is by default.

Source: org.apache.spark.sql.catalyst.expressions, BinaryArithmetic and aggregate.Sum and Average. Of decimal256, which
Spark does not have, they are the same with 76 digits in place of 38.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

_MORE_DIGITS_OF_SUM: Final = 10
_MORE_DIGITS_OF_MEAN: Final = 4
#: Digits behind the point that a result keeps when it has too many, if it has as many.
_LEAST_SCALE: Final = 6
_MOST_OF_128: Final = 38
_MOST_OF_256: Final = 76
#: Of integers, by their bits.
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Of a sum of decimals of this type: ten digits more before the point."""
    make, most = family(kind)
    return make(min(most, kind.precision + _MORE_DIGITS_OF_SUM), kind.scale)


def mean_type(kind: pa.DataType) -> pa.DataType:
    """Of a mean of decimals of this type: four digits more behind the point."""
    make, most = family(kind)
    more = _MORE_DIGITS_OF_MEAN
    return make(min(most, kind.precision + more), min(most, kind.scale + more))


def arithmetic_type(kernel: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Of `add`, `subtract`, `multiply`, `divide` and `remainder` of decimals. What has too many digits loses some
    behind the point, but no more than are beyond the sixth."""
    make, most = family(left, right)
    before, behind = _digits(kernel, left, right)
    if before + behind > most:
        behind = max(most - before, min(behind, _LEAST_SCALE))
        before = most - behind
    return make(before + behind, behind)


def _digits(kernel: str, left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """How many digits an exact result has before and behind the point; a quotient, as many as SQL says."""
    mine, its = left.precision - left.scale, right.precision - right.scale
    match kernel:
        case "multiply":
            scale = left.scale + right.scale
            return left.precision + right.precision + 1 - scale, scale
        case "divide":
            return mine + right.scale, max(_LEAST_SCALE, left.scale + right.precision + 1)
        case "remainder":
            return min(mine, its), max(left.scale, right.scale)
        case _:
            return max(mine, its) + 1, max(left.scale, right.scale)


def common_decimal(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type in which decimals and integers are compared, exactly; None where 76 digits are too few."""
    decimals = [as_decimal(kind) for kind in kinds]
    scale = max(kind.scale for kind in decimals)
    precision = scale + max(kind.precision - kind.scale for kind in decimals)
    if precision > _MOST_OF_256:
        return None
    return (pa.decimal256 if precision > _MOST_OF_128 else pa.decimal128)(precision, scale)


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """An integer type as the decimal that holds all of its values, as in Spark; a decimal as it is."""
    return pa.decimal128(_DIGITS[kind.bit_width], 0) if pa.types.is_integer(kind) else kind


def literal_type(value: Decimal) -> pa.DataType:
    """Of a number as it is written: 1.50 is decimal(3, 2), 0.05 is decimal(2, 2)."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits), scale)
    return (pa.decimal256 if precision > _MOST_OF_128 else pa.decimal128)(precision, scale)


def family(*kinds: pa.DataType) -> tuple[Any, int]:
    """What makes a type in which results of these types are, and how many digits it has at most."""
    wide = any(map(pa.types.is_decimal256, kinds))
    return (pa.decimal256, _MOST_OF_256) if wide else (pa.decimal128, _MOST_OF_128)
