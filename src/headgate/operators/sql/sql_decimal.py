"""Arithmetic and comparisons of decimals in SQL strings, which are exact.

`DecimalCall` computes in 256 bits and then rounds half up to the type that Spark SQL gives the result.
`CompareDecimals` compares decimals that have no common type.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.compat import MISSING_KERNELS
from headgate.operators.sql.sql_eval import SqlNode, Value
from headgate.records.canonical import fixed_words, from_fixed_words, null_mask

_MOST: Final = 76
_INT64_END: Final = 1 << 63
_EXACT: Final = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class DecimalCall(SqlNode):
    """The node of an arithmetic operator on two decimals, which may have different types. `NullIfZero` has replaced a
    zero divisor by null.

    Arrow computes whole columns. Python computes two cases row by row: an operation with an intermediate result of more
    than 76 digits, and a remainder if this pyarrow has no kernel for it.
    """

    kernel: str
    left: SqlNode
    right: SqlNode
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        left, right = self.left.evaluate(batch), self.right.evaluate(batch)
        if self.kernel == "multiply" and (product := self._small_product(left, right)) is not None:
            return product
        left, right = _wide(left), _wide(right)
        operands = self._for_arrow(left, right)
        if operands is None:
            return self._one_by_one(left, right)
        kernel = self.kernel if self.kernel == "remainder" else f"{self.kernel}_checked"
        return self._rounded(pc.call_function(kernel, operands))

    def _small_product(self, left: Value, right: Value) -> Value | None:
        """Return the product of a column and a number if all products fit into 64 bits, or None.

        It takes a third of the time that Arrow takes with 256 bits.
        """
        number, column = (left, right) if isinstance(left, pa.Scalar) else (right, left)
        kinds = (self.type, number.type, column.type)
        if not isinstance(column, pa.Array) or not isinstance(number, pa.Scalar) or not number.is_valid:
            return None
        if not all(map(pa.types.is_decimal128, kinds)) or self.type.scale != number.type.scale + column.type.scale:
            return None
        factor = int(number.as_py().scaleb(number.type.scale, _EXACT))
        low, high = fixed_words(column)
        most = max(-int(low.min()), int(low.max()), 1) if len(low) else 1
        if most * abs(factor) >= min(_INT64_END, 10**self.type.precision) or (high != low >> 63).any():
            return None
        product = low * factor
        return from_fixed_words([product, product >> 63], null_mask(column), self.type)

    def _for_arrow(self, left: Value, right: Value) -> list[Value] | None:
        """Return the operands in types with which Arrow's result has at most 76 digits, or None without such types."""
        if self.kernel in MISSING_KERNELS:
            return None
        if self.kernel == "divide":
            rescaled = self._dividend(left.type, right.type)
            return None if rescaled is None else [pc.cast(left, rescaled), right]
        if self.kernel == "multiply":
            return _factors(left, right)
        whole = max(kind.precision - kind.scale for kind in (left.type, right.type))
        return [left, right] if whole + max(left.type.scale, right.type.scale) < _MOST else None

    def _dividend(self, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
        """Return the type to which the dividend is cast, or None if this type would need too many digits.

        The cast adds zeros until Arrow's quotient has one digit more than the result. Arrow cuts the quotient after
        this extra digit, and the extra digit decides the rounding.
        """
        scale = left.scale + right.precision - right.scale + 1  # the scale of Arrow's quotient, which is at least 4
        more = max(0, self.type.scale + 1 - scale)
        precision = left.precision - left.scale + right.scale + max(4, scale + more)
        if precision > _MOST or left.precision + more > _MOST:
            return None
        return pa.decimal256(left.precision + more, left.scale + more)

    def _rounded(self, value: Value) -> Value:
        scale = value.type.scale
        if scale > self.type.scale:
            value = pc.cast(value, pa.decimal256(_MOST, scale))
            value = pc.round(value, self.type.scale, round_mode="half_towards_infinity")
        return pc.cast(value, self.type)

    def _one_by_one(self, left: Value, right: Value) -> Value:
        arrays = [value for value in (left, right) if isinstance(value, pa.Array)]
        rows = len(arrays[0]) if arrays else 1
        pairs = zip(_values(left, rows), _values(right, rows), strict=True)
        results = pa.array([self._row(*pair) for pair in pairs], pa.decimal256(_MOST, self.type.scale))
        results = pc.cast(results, self.type)
        return results if arrays else results[0]

    def _row(self, left: Decimal | None, right: Decimal | None) -> Decimal | None:
        """Return the result of one row, rounded half up. Return None if an operand is None."""
        if left is None or right is None:
            return None
        exact: Decimal = getattr(_EXACT, self.kernel)(left, right)
        return exact.quantize(_EXACT.scaleb(Decimal(1), -self.type.scale), context=_EXACT)


@dataclass(frozen=True, slots=True)
class CompareDecimals(SqlNode):
    """A comparison of two decimals whose common type would need more than 76 digits.

    The operand with more digits after the point is cut to the digits of the other one. If the two then differ, they
    decide. If they are equal, the digits that were cut decide.
    """

    operator: str
    left: SqlNode
    right: SqlNode
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        left, right = self.left.evaluate(batch), self.right.evaluate(batch)
        if left.type.scale < right.type.scale:
            return _compare_cut(_MIRRORED[self.operator], right, left)
        return _compare_cut(self.operator, left, right)


def _compare_cut(operator: str, fine: Value, coarse: Value) -> Value:
    fine, coarse = (pc.cast(value, pa.decimal256(_MOST, value.type.scale)) for value in (fine, coarse))
    cut = pc.cast(fine, coarse.type, safe=False)  # towards zero
    by_rest = pc.call_function(operator, [fine, pc.cast(cut, fine.type)])
    return pc.if_else(pc.equal(cut, coarse), by_rest, pc.call_function(operator, [cut, coarse]))


_MIRRORED: Final = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


def _wide(value: Value) -> Value:
    return pc.cast(value, pa.decimal256(value.type.precision, value.type.scale))


def _factors(left: Value, right: Value) -> list[Value] | None:
    """Return two factors whose precisions together are less than 76, or None if the values have too many digits."""
    digits = min(right.type.precision, _MOST - 1 - left.type.precision)
    if digits < max(1, right.type.scale):
        return None
    try:
        return [left, pc.cast(right, pa.decimal256(digits, right.type.scale))]
    except pa.ArrowInvalid:
        return None


def _values(value: Value, rows: int) -> list[Any]:
    values: list[Any] = value.to_pylist() if isinstance(value, pa.Array) else [value.as_py()] * rows
    return values
