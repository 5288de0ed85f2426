"""Map values of fixed width to 64-bit words of the same order, so that NumPy can sort and compare values of any such
type."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headgate.records.canonical import Int64s, fixed_words, raw_values

#: The columns that rank rows, the most important one first. True: its greatest value is ahead; False: its least one.
Ranking: TypeAlias = tuple[tuple[str, bool], ...]
#: The most digits of a decimal that fits into 64 bits.
_MOST_DIGITS = 18
_SIGN = np.int64(-(1 << 63))
_BELOW_SIGN = np.int64((1 << 63) - 1)


def has_order_words(kind: pa.DataType) -> bool:
    """Return whether `order_words` takes values of this type: numbers, times, booleans, and decimals of at most 18
    digits."""
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= _MOST_DIGITS)
    return bool(pa.types.is_primitive(kind)) and kind.bit_width <= 64


def order_words(column: pa.Array) -> Int64s:
    """Return a word for each value: a greater value has a greater word. The words at nulls are arbitrary.

    NaN is greater than any number, and -0.0 equals 0.0.
    """
    kind = column.type
    if pa.types.is_decimal(kind):
        return fixed_words(column)[0]
    if pa.types.is_floating(kind):
        bits = fixed_words(column)[0]
        return np.where(bits < 0, bits ^ _BELOW_SIGN, bits)
    values = raw_values(column)
    if values.dtype == np.uint64:
        return values.view(np.int64) ^ _SIGN
    return values.view(np.int64) if values.dtype.itemsize == 8 else values.astype(np.int64)
