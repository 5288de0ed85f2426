"""`Arguments`: the arguments of one call of a SQL function, compiled and checked, with errors at their position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa

from headgate.operators.sql.sql_calls import Apply
from headgate.operators.sql.sql_eval import Cast, SqlNode
from headgate.operators.sql.sql_types import kind_of, value_type

if TYPE_CHECKING:
    from sqlglot import exp

_NO_ROWS = pa.RecordBatch.from_arrays([], schema=pa.schema([]))


class Operands(Protocol):
    """The methods of the compiler that functions call. The compiler imports the functions, so they cannot import it."""

    def node(self, tree: exp.Expr) -> SqlNode:
        """Compile a part of the expression."""

    def refuse(self, tree: exp.Expr, problem: str) -> NoReturn:
        """Raise a PlanError that points to this part."""

    def coerce(self, node: SqlNode, target: pa.DataType, tree: exp.Expr) -> SqlNode:
        """Return the node in a wider type."""

    def boolean(self, tree: exp.Expr) -> SqlNode:
        """Compile a condition."""

    def equal(self, first: exp.Expr, second: exp.Expr) -> SqlNode:
        """Compile `first = second`."""

    def alternatives(self, trees: Sequence[exp.Expr]) -> list[SqlNode]:
        """Compile values of which each row gets one, as those of `case`, and cast them to one type."""

    def arithmetic(self, tree: exp.Expr, kernel: str, first: exp.Expr, second: exp.Expr) -> SqlNode:
        """Compile arithmetic on two numbers."""


class Arguments:
    """The arguments of one call. Each method compiles one argument, by its index from 0, to what the function needs."""

    def __init__(self, compiler: Operands, name: str, tree: exp.Expr, trees: Sequence[exp.Expr]) -> None:
        self.compiler = compiler
        self.name = name
        self.tree = tree
        self.trees = list(trees)

    def __len__(self) -> int:
        return len(self.trees)

    def refuse(self, index: int | None, problem: str) -> NoReturn:
        """Raise a PlanError that points to the argument, or for None to the call."""
        self.compiler.refuse(self.tree if index is None else self.trees[index], f"{self.name}: {problem}")

    def node(self, index: int) -> SqlNode:
        """Return an argument of any type."""
        return self.compiler.node(self.trees[index])

    def string(self, index: int) -> SqlNode:
        node = self._of_kind(index, ("string",), "a string; write cast(... as string)")
        return self._as(index, node, pa.string())

    def strings(self, first: int) -> list[SqlNode]:
        """Return all arguments from `first` on as strings of one type."""
        nodes = [self.string(index) for index in range(first, len(self.trees))]
        kind = next((node.type for node in nodes if pa.types.is_large_string(node.type)), pa.string())
        return [as_type(node, kind) for node in nodes]

    def number(self, index: int) -> SqlNode:
        """Return an integer, a decimal or a float. A null literal becomes a float."""
        node = self._of_kind(index, ("integer", "decimal", "float"), "a number")
        return self._as(index, node, pa.float64()) if pa.types.is_null(node.type) else node

    def real(self, index: int) -> SqlNode:
        """Return a number as a float64."""
        return self._as(index, self.number(index), pa.float64())

    def integer(self, index: int) -> SqlNode:
        return self._as(index, self._of_kind(index, ("integer",), "an integer"), pa.int64())

    def moment(self, index: int) -> SqlNode:
        """Return a date or a timestamp as a timestamp without a zone, in microseconds or nanoseconds."""
        node = self.time(index)
        unit = node.type.unit if pa.types.is_timestamp(node.type) and node.type.unit == "ns" else "us"
        return as_type(node, pa.timestamp(unit))

    def time(self, index: int) -> SqlNode:
        """Return a date or a timestamp."""
        node = self._of_kind(index, ("timestamp",), "a date or a timestamp; write cast(... as timestamp)")
        return self._as(index, node, pa.timestamp("us")) if pa.types.is_null(node.type) else node

    def date(self, index: int) -> SqlNode:
        """Return the date of a date or a timestamp."""
        return as_type(self.moment(index), pa.date32())

    def text(self, index: int) -> str:
        """Return the value of an argument that must be a string literal."""
        value = self._constant(index)
        if not isinstance(value, str):
            self.refuse(index, "this argument must be a string literal")
        return value

    def whole(self, index: int) -> int:
        """Return the value of an argument that must be an integer literal."""
        value = self._constant(index)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(index, "this argument must be an integer literal")
        return value

    def is_literal(self, index: int) -> bool:
        """Return whether the argument is a string literal."""
        tree = self.trees[index]
        return bool(tree.key == "literal" and tree.is_string)

    def is_string(self, index: int) -> bool:
        return kind_of(self.node(index).type) == "string"

    def apply(self, function: Callable[..., pa.Array], result: pa.DataType, *operands: SqlNode) -> SqlNode:
        return Apply(function, operands, result)

    def _constant(self, index: int) -> Any:
        """Return the value of an argument that reads no column, or None if it reads one."""
        node = self.node(index)
        try:
            value = node.evaluate(_NO_ROWS)
        except (KeyError, pa.ArrowInvalid):
            return None
        return value.as_py() if isinstance(value, pa.Scalar) else None

    def _of_kind(self, index: int, kinds: tuple[str, ...], wanted: str) -> SqlNode:
        node = self.node(index)
        if kind_of(node.type) not in (*kinds, "null"):
            shown = self.trees[index].sql("spark")
            self.refuse(index, f"{shown} is {node.type}, and {self.name} needs {wanted}")
        return node

    def _as(self, index: int, node: SqlNode, target: pa.DataType) -> SqlNode:
        if pa.types.is_large_string(value_type(node.type)) and pa.types.is_string(target):
            target = pa.large_string()
        return self.compiler.coerce(node, target, self.trees[index])


def as_type(node: SqlNode, target: pa.DataType) -> SqlNode:
    """Return the node, with a cast if its type differs. The cast may lose the time of day, or the fraction of a
    float."""
    return node if node.type.equals(target) else Cast(node, target, False)
