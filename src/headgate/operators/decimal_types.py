"""The types of what is computed from decimals, which are Spark SQL's, with its option
`spark.sql.decimalOperations.allowPrecisionLoss` as it is by default.

Source: org.apache.spark.sql.catalyst.expressions, BinaryArithmetic and aggregate.Sum and Average. Of decimal256, which
Spark does not have, they are the same with 76 digits in place of 38.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_MORE_DIGITS_OF_SUM: Final = 10
_MORE_DIGITS_OF_MEAN: Final = 4


def sum_type(kind: pa.DataType) -> pa.DataType:
    """Of a sum of decimals of this type: ten digits more before the point."""
    make, most = family(kind)
    return make(min(most, kind.precision + _MORE_DIGITS_OF_SUM), kind.scale)


def mean_type(kind: pa.DataType) -> pa.DataType:
    """Of a mean of decimals of this type: four digits more behind the point."""
    make, most = family(kind)
    more = _MORE_DIGITS_OF_MEAN
    return make(min(most, kind.precision + more), min(most, kind.scale + more))


def family(*kinds: pa.DataType) -> tuple[Any, int]:
    """What makes a type in which results of these types are, and how many digits it has at most."""
    return (pa.decimal256, 76) if any(map(pa.types.is_decimal256, kinds)) else (pa.decimal128, 38)
