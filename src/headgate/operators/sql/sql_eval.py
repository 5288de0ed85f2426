"""The nodes a SQL string is compiled into: small frozen dataclasses that evaluate themselves on a batch.

Every operand has its final type already: the compiler inserts `Cast`. Meaning is Spark SQL's (https://spark.apache.org/docs/latest/sql-ref.html,
"Null semantics" and "NaN semantics"): null is unknown, NaN equals NaN and is greater than any number, -0.0 equals 0.0,
a division by zero is null.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import pyarrow as pa
import pyarrow.compute as pc

from headgate.compat import MISSING_KERNELS

#: What a node evaluates to: a scalar where it depends on no column, else an array as long as the batch.
Value: TypeAlias = Union[pa.Array, pa.Scalar]  # noqa: UP007 - pyarrow has no types: "|" would not be an alias


class SqlNode(ABC):
    """A piece of an expression; immutable and picklable."""

    type: pa.DataType

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch) -> Value:
        """The node's value for each row. Raises pa.ArrowInvalid where an integer overflows."""


@dataclass(frozen=True, slots=True)
class Column(SqlNode):
    name: str
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return batch.column(self.name)


@dataclass(frozen=True, slots=True)
class Literal(SqlNode):
    """A constant: int, float, str, bool, None or a datetime with a zone."""

    value: Any
    type: pa.DataType
    #: Of a float64 the decimal that is written, if it is written without an exponent: it may meet a decimal.
    exact: Literal | None = None

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Cast(SqlNode):
    """A widening of the operand's type; int64 to float64 rounds, as it does in Spark."""

    operand: SqlNode
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return pc.cast(self.operand.evaluate(batch), self.type, safe=not pa.types.is_floating(self.type))


@dataclass(frozen=True, slots=True)
class Call(SqlNode):
    """An Arrow kernel whose meaning is already the one wanted."""

    kernel: str
    operands: tuple[SqlNode, ...]
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        values = [operand.evaluate(batch) for operand in self.operands]
        missing = MISSING_KERNELS.get(self.kernel)
        return pc.call_function(self.kernel, values) if missing is None else missing(*values)


@dataclass(frozen=True, slots=True)
class NullIfZero(SqlNode):
    """A divisor."""

    operand: SqlNode
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        value = self.operand.evaluate(batch)
        return pc.if_else(pc.equal(value, pa.scalar(0, self.type)), pa.scalar(None, self.type), value)


@dataclass(frozen=True, slots=True)
class CompareFloats(SqlNode):
    """A comparison in which NaN is equal to itself and greater than any number; Arrow's own follow IEEE 754."""

    operator: str
    left: SqlNode
    right: SqlNode
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return _TOTAL_ORDER[self.operator](self.left.evaluate(batch), self.right.evaluate(batch))


def _equal(left: Value, right: Value) -> Value:
    return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))


def _greater(left: Value, right: Value) -> Value:
    return pc.and_(pc.invert(pc.less_equal(left, right)), pc.invert(pc.is_nan(right)))


_TOTAL_ORDER: dict[str, Callable[[Value, Value], Value]] = {
    "equal": _equal,
    "not_equal": lambda left, right: pc.invert(_equal(left, right)),
    "greater": _greater,
    "greater_equal": lambda left, right: pc.invert(_greater(right, left)),
    "less": lambda left, right: _greater(right, left),
    "less_equal": lambda left, right: pc.invert(_greater(left, right)),
}


@dataclass(frozen=True, slots=True)
class InLiterals(SqlNode):
    """`operand in (constants)`: one hash probe per row. Unknown for null, and for a miss when a constant is null."""

    operand: SqlNode
    values: tuple[Literal, ...]
    has_null: bool
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        value = self.operand.evaluate(batch)
        wanted = pa.array([literal.value for literal in self.values], self.operand.type)
        if pa.types.is_floating(self.operand.type):
            value, wanted = pc.add(value, 0.0), pc.add(wanted, 0.0)  # no -0.0: the hash table tells it from 0.0
        found = pc.is_in(value, wanted)
        unknown = pa.scalar(None, pa.bool_())
        if self.has_null:
            found = pc.if_else(found, True, unknown)
        return pc.if_else(pc.is_valid(value), found, unknown)


@dataclass(frozen=True, slots=True)
class Like(SqlNode):
    """`operand like pattern`; the pattern is in Arrow's form, with a backslash before what stands for itself."""

    operand: SqlNode
    pattern: str
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return pc.match_like(self.operand.evaluate(batch), self.pattern)
