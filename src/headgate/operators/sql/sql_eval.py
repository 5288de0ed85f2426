"""The nodes of compiled SQL strings: small frozen dataclasses. Each node evaluates itself on a batch.

Operands already have the type that their operator needs, because the compiler inserts each `Cast`. Values mean the same
as in Spark SQL. Null is unknown. NaN equals NaN and is greater than any number. -0.0 equals 0.0, and a division by zero
returns null. Source: https://spark.apache.org/docs/latest/sql-ref.html, "Null semantics" and "NaN semantics".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias, Union

import pyarrow as pa
import pyarrow.compute as pc

from headgate.compat import MISSING_KERNELS

#: The value of a node: a scalar if the node reads no column, otherwise an array with one value per row.
Value: TypeAlias = Union[pa.Array, pa.Scalar]  # noqa: UP007 - pyarrow has no types: "|" would not be an alias


class SqlNode(ABC):
    """A node of an expression, immutable and picklable. `type` is the type of the node's value."""

    type: pa.DataType

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch) -> Value:
        """Return the node's value for each row. Raises pa.ArrowInvalid if an integer or a decimal overflows."""


def nodes_of(part: object) -> Iterator[SqlNode]:
    """Yield all nodes of a node or of a tuple, itself included."""
    if isinstance(part, SqlNode) and is_dataclass(part):
        yield part
        for each in fields(part):
            yield from nodes_of(getattr(part, each.name))
    elif isinstance(part, tuple | list):
        for item in part:
            yield from nodes_of(item)


def columns_read(node: SqlNode) -> frozenset[str]:
    """Return the names of the columns that a node reads."""
    return frozenset(each.name for each in nodes_of(node) if isinstance(each, Column))


def as_column(value: Value, rows: int) -> pa.Array:
    """Return a value as an array with one value per row."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


@dataclass(frozen=True, slots=True)
class Column(SqlNode):
    """A column of the batch."""

    name: str
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return batch.column(self.name)


@dataclass(frozen=True, slots=True)
class Literal(SqlNode):
    """A constant: a Python value that Arrow can convert to the type, or None."""

    value: Any
    type: pa.DataType
    #: The exact decimal of a float64 that the user wrote without an exponent, for arithmetic with decimals.
    exact: Literal | None = None

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Cast(SqlNode):
    """A cast of the operand to another type. A cast from int64 to float64 rounds, as in Spark.

    With `safe`, a value that does not fit the type is an error. Without `safe`, the cast changes the value.
    """

    operand: SqlNode
    type: pa.DataType
    safe: bool = True

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        safe = self.safe and not pa.types.is_floating(self.type)
        return pc.cast(self.operand.evaluate(batch), self.type, safe=safe)


@dataclass(frozen=True, slots=True)
class Call(SqlNode):
    """A call of an Arrow kernel that has the meaning of the SQL operator."""

    kernel: str
    operands: tuple[SqlNode, ...]
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        values = [operand.evaluate(batch) for operand in self.operands]
        missing = MISSING_KERNELS.get(self.kernel)
        return pc.call_function(self.kernel, values) if missing is None else missing(*values)


@dataclass(frozen=True, slots=True)
class NullIfZero(SqlNode):
    """A divisor: the operand, with null instead of 0."""

    operand: SqlNode
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        value = self.operand.evaluate(batch)
        return pc.if_else(pc.equal(value, pa.scalar(0, self.type)), pa.scalar(None, self.type), value)


@dataclass(frozen=True, slots=True)
class CompareFloats(SqlNode):
    """A comparison of floats in which NaN equals NaN and is greater than any number. Arrow's own kernels follow IEEE
    754, where NaN equals nothing."""

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
    """The node of `operand in (constants)`. It makes one hash lookup per row.

    The result is null for a null operand. It is also null if no constant matches and one of the constants is null.
    """

    operand: SqlNode
    values: tuple[Literal, ...]
    has_null: bool
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        value = self.operand.evaluate(batch)
        wanted = pa.array([literal.value for literal in self.values], self.operand.type)
        if pa.types.is_floating(self.operand.type):
            value, wanted = pc.add(value, 0.0), pc.add(wanted, 0.0)  # -0.0 becomes 0.0: the two hash differently
        is_in = pc.is_in(value, wanted)
        unknown = pa.scalar(None, pa.bool_())
        if self.has_null:
            is_in = pc.if_else(is_in, True, unknown)
        return pc.if_else(pc.is_valid(value), is_in, unknown)


@dataclass(frozen=True, slots=True)
class Like(SqlNode):
    """The node of `operand like pattern`. As Arrow expects, a backslash in the pattern escapes %, _ and a backslash."""

    operand: SqlNode
    pattern: str
    type: pa.DataType

    def evaluate(self, batch: pa.RecordBatch) -> Value:
        return pc.match_like(self.operand.evaluate(batch), self.pattern)
