"""`compile_expression` checks a SQL string against a schema. The driver calls it once, and sends the `Expression` to
tasks.

An expression means the same as in Spark SQL. `/` returns a float64; a division by zero returns null. Integers are
int64, and an overflow is an error. Decimals are exact. All other arithmetic is float64. `and`, `or`, `not` are
three-valued. A timestamp without a zone is UTC. All types are known when the string is compiled. A comparison of a
string with a number is a PlanError, because neither is converted to the other.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from headgate.errors import DataError
from headgate.operators.decimal_types import arithmetic_type, as_decimal, literal_type
from headgate.operators.sql.sql_decimal import DecimalCall
from headgate.operators.sql.sql_eval import (
    Call,
    Cast,
    Column,
    CompareFloats,
    InLiterals,
    Like,
    Literal,
    NullIfZero,
    SqlNode,
)
from headgate.operators.sql.sql_parser import ALLOWED, parse, position_of, sql_error
from headgate.operators.sql.sql_types import common_type, kind_of

if TYPE_CHECKING:
    from sqlglot import exp

#: The name of a hidden column with each row's event time. A stream has this column if the user dropped the event-time
#: column. The user never sees it.
HIDDEN_COLUMN = "__event_time__"

#: Python cannot pickle much deeper trees.
_MAX_DEPTH = 100
_INT64 = range(-(1 << 63), 1 << 63)
_MOST_DIGITS = 76
_BOOL = pa.bool_()


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled SQL string, immutable and picklable. `text` is the string, for errors."""

    text: str
    root: SqlNode

    @property
    def type(self) -> pa.DataType:
        return self.root.type

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the expression's value for each row of `batch`. Raises DataError if an integer or a decimal
        overflows."""
        try:
            value = self.root.evaluate(batch)
        except pa.ArrowInvalid as error:
            limits = "its type" if pa.types.is_decimal(self.type) else "64 bits"
            problem = f"a value of {self.text!r} leaves the range of {limits} ({error})"
            raise DataError(f"{problem}; to calculate in float64, write 1.0 * column") from None
        return pa.repeat(value, batch.num_rows) if isinstance(value, pa.Scalar) else value


def compile_expression(text: str, schema: pa.Schema) -> Expression:
    """Compile a SQL string for rows of this schema. Raises PlanError for a mistake, and shows its position."""
    columns = [name for name in schema.names if name != HIDDEN_COLUMN]
    return Expression(text, _Compiler(text, schema).node(parse(text, columns)))


def column_expression(name: str, schema: pa.Schema) -> Expression:
    """Return the expression whose value is a column of `schema`, unchanged."""
    return Expression(name, Column(name, schema.field(name).type))


class _Compiler:
    """A compiler from sqlglot's syntax tree to SqlNodes, from the leaves to the root.

    It casts each operand to the type that the operator needs.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._depth = 0

    def node(self, tree: exp.Expr) -> SqlNode:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(tree, f"nested more than {_MAX_DEPTH} deep; 'in' takes long lists of values")
        node = self._compile(tree)
        self._depth -= 1
        return node

    def _compile(self, tree: exp.Expr) -> SqlNode:
        kind = tree.key
        if kind in _ARITHMETIC:
            return self._arithmetic(tree, _ARITHMETIC[kind])
        if kind in _COMPARISONS:
            left, right = self._common([tree.this, tree.expression])
            return _compare(_COMPARISONS[kind], left, right)
        if kind in ("and", "or"):
            return self._logical(tree, f"{kind}_kleene")
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._refuse(tree, f"{tree.sql('spark')!r} is not allowed; {ALLOWED}")
        return handler(self, tree)

    def _refuse(self, tree: exp.Expr, problem: str) -> NoReturn:
        raise sql_error(self._text, position_of(tree), problem)

    # -- leaves

    def _paren(self, tree: exp.Expr) -> SqlNode:
        return self.node(tree.this)

    def _column(self, tree: exp.Expr) -> SqlNode:
        if tree.args.get("table") is not None:
            self._refuse(tree, f"write a column without a table name; {ALLOWED}")
        return Column(tree.name, self._schema.field(tree.name).type)

    def _null(self, tree: exp.Expr) -> SqlNode:
        return Literal(None, pa.null())

    def _truth(self, tree: exp.Expr) -> SqlNode:
        return Literal(bool(tree.this), _BOOL)

    def _constant(self, tree: exp.Expr) -> SqlNode:
        return Literal(tree.this, pa.string()) if tree.is_string else self._number(tree, tree.this)

    def _number(self, tree: exp.Expr, digits: str) -> SqlNode:
        if digits.lstrip("-").isdigit():
            if int(digits) not in _INT64:
                self._refuse(tree, f"{digits} does not fit int64; write {digits}.0 for a float64")
            return Literal(int(digits), pa.int64())
        try:
            return Literal(float(digits), pa.float64(), _exact(digits))
        except ValueError:
            self._refuse(tree, f"{digits!r} is not a number")

    def _timestamp(self, tree: exp.Expr) -> SqlNode:
        if tree.args["to"].this.name != "TIMESTAMPTZ" or tree.this.key != "literal" or not tree.this.is_string:
            self._refuse(tree, f"casts are not allowed; {ALLOWED}")
        text = str(tree.this.this)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self._refuse(tree, f"{text!r} is not a timestamp like '2024-01-31 13:45:00' or '...+01:00'")
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return Literal(moment, pa.timestamp("us", "UTC"))

    # -- operators

    def _arithmetic(self, tree: exp.Expr, kernel: str) -> SqlNode:
        left, right = _align_decimals([self._numeric(tree.this), self._numeric(tree.expression)])
        if {kind_of(left.type), kind_of(right.type)} in ({"decimal"}, {"decimal", "integer"}):
            return self._decimal(tree, kernel, left, right)
        if (folded := _folded(kernel, left, right)) is not None:
            return folded
        both_int = kind_of(left.type) == kind_of(right.type) == "integer"
        result = pa.int64() if both_int and kernel != "divide" else pa.float64()
        left, right = self._coerce(left, result, tree), self._coerce(right, result, tree)
        if kernel in ("divide", "remainder"):
            return Call(kernel, (left, NullIfZero(right, result)), result)
        return Call(f"{kernel}_checked" if both_int else kernel, (left, right), result)

    def _decimal(self, tree: exp.Expr, kernel: str, left: SqlNode, right: SqlNode) -> SqlNode:
        left, right = (self._coerce(node, as_decimal(node.type), tree) for node in (left, right))
        digits = left.type.precision + right.type.precision
        whole = max(kind.precision - kind.scale for kind in (left.type, right.type))
        if digits > _MOST_DIGITS or whole + max(left.type.scale, right.type.scale) >= _MOST_DIGITS:
            self._refuse(tree, f"{left.type} and {right.type} have too many digits to calculate with")
        result = arithmetic_type(kernel, left.type, right.type)
        if kernel in ("divide", "remainder"):
            right = NullIfZero(right, right.type)
        return DecimalCall(kernel, left, right, result)

    def _negate(self, tree: exp.Expr) -> SqlNode:
        inner = tree.this
        if inner.key == "literal" and not inner.is_string:  # so users can write -9223372036854775808
            return self._number(inner, f"-{inner.this}")
        operand = self._numeric(inner)
        integer = kind_of(operand.type) == "integer"
        if kind_of(operand.type) == "decimal":
            return Call("negate", (operand,), operand.type)
        result = pa.int64() if integer else pa.float64()
        return Call("negate_checked" if integer else "negate", (self._coerce(operand, result, tree),), result)

    def _logical(self, tree: exp.Expr, kernel: str) -> SqlNode:
        """Compile a chain of one operator into a balanced tree, so that Python can pickle a chain of thousands of
        operands."""
        nodes = [self._boolean(part) for part in tree.flatten()]
        while len(nodes) > 1:
            pairs = [tuple(nodes[start : start + 2]) for start in range(0, len(nodes), 2)]
            nodes = [Call(kernel, pair, _BOOL) if len(pair) == 2 else pair[0] for pair in pairs]
        return nodes[0]

    def _not(self, tree: exp.Expr) -> SqlNode:
        return _invert(self._boolean(tree.this))

    def _is(self, tree: exp.Expr) -> SqlNode:
        if tree.expression.key != "null":
            self._refuse(tree, f"only 'is null' and 'is not null' are allowed; {ALLOWED}")
        return Call("is_null", (self.node(tree.this),), _BOOL)

    def _between(self, tree: exp.Expr) -> SqlNode:
        value, low, high = self._common([tree.this, tree.args["low"], tree.args["high"]])
        return Call("and_kleene", (_compare("greater_equal", value, low), _compare("less_equal", value, high)), _BOOL)

    def _in(self, tree: exp.Expr) -> SqlNode:
        if not tree.expressions:
            self._refuse(tree, "'in' takes a list of values in parentheses, with at least one")
        operand, *values = self._common([tree.this, *tree.expressions])
        if all(isinstance(value, Literal) for value in values):
            known = tuple(value for value in values if isinstance(value, Literal) and value.value is not None)
            return InLiterals(operand, known, len(known) < len(values), _BOOL)
        is_in = _compare("equal", operand, values[0])
        for value in values[1:]:
            is_in = Call("or_kleene", (is_in, _compare("equal", operand, value)), _BOOL)
        return is_in

    def _like(self, tree: exp.Expr, escape: str = "\\") -> SqlNode:
        operand, pattern = self.node(tree.this), tree.expression
        if kind_of(operand.type) not in ("string", "null"):
            self._refuse(tree, f"'like' needs a string, not {operand.type}")
        if pattern.key != "literal" or not pattern.is_string:
            self._refuse(pattern, "the pattern of 'like' must be a string literal")
        arrow_pattern = self._pattern(pattern, escape)
        result = Like(self._coerce(operand, common_type([operand.type, pa.string()]), tree), arrow_pattern, _BOOL)
        return _invert(result) if tree.args.get("negate") else result

    def _escape(self, tree: exp.Expr) -> SqlNode:
        escape = tree.expression
        if tree.this.key != "like" or escape.key != "literal" or not escape.is_string or len(escape.this) != 1:
            self._refuse(escape, "'escape' follows a 'like' and takes one character, as in like '50!%' escape '!'")
        return self._like(tree.this, escape.this)

    def _pattern(self, tree: exp.Expr, escape: str) -> str:
        """Return the pattern with a backslash, which is Arrow's escape character, instead of `escape`."""
        out, characters = [], iter(str(tree.this))
        for character in characters:
            if character == escape:
                following = next(characters, "")
                if following not in ("%", "_", escape):
                    self._refuse(tree, f"the escape character {escape!r} must stand before %, _ or itself")
                out.append(following if following not in "%_\\" else f"\\{following}")
            else:
                out.append("\\\\" if character == "\\" else character)
        return "".join(out)

    # -- operands

    def _numeric(self, tree: exp.Expr) -> SqlNode:
        node = self.node(tree)
        if kind_of(node.type) not in ("integer", "decimal", "float", "null"):
            self._refuse(tree, f"{tree.sql('spark')} is {node.type}: arithmetic needs integers, decimals or floats")
        return node

    def _boolean(self, tree: exp.Expr) -> SqlNode:
        node = self.node(tree)
        if kind_of(node.type) not in ("boolean", "null"):
            self._refuse(tree, f"{tree.sql('spark')} is {node.type}: and, or, not need conditions")
        return self._coerce(node, _BOOL, tree)

    def _common(self, trees: Sequence[exp.Expr]) -> list[SqlNode]:
        """Compile operands and cast them to their common type. Raises PlanError if the operands have no common type."""
        nodes = _align_decimals([self.node(tree) for tree in trees])
        target = common_type([node.type for node in nodes])
        if target is None:
            shown = " with ".join(dict.fromkeys(f"{node.type}" for node in nodes))
            hint = "; write times as timestamp '...'" if any(pa.types.is_timestamp(node.type) for node in nodes) else ""
            self._refuse(trees[0], f"cannot compare {shown}: types are not converted{hint}")
        return [self._coerce(node, target, tree) for node, tree in zip(nodes, trees, strict=True)]

    def _coerce(self, node: SqlNode, target: pa.DataType, tree: exp.Expr) -> SqlNode:
        if node.type.equals(target):
            return node
        if not isinstance(node, Literal):
            return Cast(node, target)
        value = float(node.value) if pa.types.is_floating(target) and node.value is not None else node.value
        try:
            pa.scalar(value, target)
        except pa.ArrowInvalid as error:
            self._refuse(tree, f"{node.value} cannot be compared with {target}: {error}")
        return Literal(value, target)


def _exact(digits: str) -> Literal | None:
    """Return the text of a number with a point as a decimal literal. Return None if the text has an exponent or too
    many digits."""
    is_plain = "e" not in digits.lower() and len(digits) <= _MOST_DIGITS // 2
    return _decimal(Decimal(digits)) if is_plain else None


def _align_decimals(nodes: list[SqlNode]) -> list[SqlNode]:
    """Return the nodes. If a node is a decimal, turn all literal numbers into decimals too."""
    if not any(kind_of(node.type) == "decimal" for node in nodes):
        return nodes
    return [_written(node) if isinstance(node, Literal) else node for node in nodes]


def _folded(kernel: str, left: SqlNode, right: SqlNode) -> Literal | None:
    """Return the result of an operator on two literal numbers, as one literal that also holds the exact decimal value.

    At least one of the two numbers has a point. `price * (1 + 0.19)` is therefore exact for a decimal `price`. Returns
    None if an operand is not such a literal.
    """
    if kernel not in _FOLDED or kind_of(left.type) == kind_of(right.type) == "integer":
        return None
    left, right = (_written(node) if isinstance(node, Literal) else node for node in (left, right))
    if not isinstance(left, Literal) or not isinstance(right, Literal):
        return None
    if {kind_of(left.type), kind_of(right.type)} != {"decimal"}:
        return None
    exact = Literal(getattr(_EXACT, kernel)(left.value, right.value), arithmetic_type(kernel, left.type, right.type))
    return Literal(_FOLDED[kernel](float(left.value), float(right.value)), pa.float64(), exact)


def _written(literal: Literal) -> Literal:
    """Return a literal number as the exact decimal that the user wrote. Return the literal itself if it has no exact
    decimal."""
    return _decimal(Decimal(literal.value)) if kind_of(literal.type) == "integer" else literal.exact or literal


def _decimal(value: Decimal) -> Literal:
    return Literal(value, literal_type(value))


def _compare(operator: str, left: SqlNode, right: SqlNode) -> SqlNode:
    if pa.types.is_floating(left.type):
        return CompareFloats(operator, left, right, _BOOL)
    return Call(operator, (left, right), _BOOL)


def _invert(node: SqlNode) -> SqlNode:
    return Call("invert", (node,), _BOOL)


_ARITHMETIC = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "mod": "remainder"}
_EXACT = Context(prec=200)
_FOLDED: dict[str, Callable[..., Any]] = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}
_COMPARISONS = {
    "eq": "equal",
    "neq": "not_equal",
    "lt": "less",
    "lte": "less_equal",
    "gt": "greater",
    "gte": "greater_equal",
}
_HANDLERS: dict[str, Callable[[_Compiler, exp.Expr], SqlNode]] = {
    "paren": _Compiler._paren,
    "column": _Compiler._column,
    "null": _Compiler._null,
    "boolean": _Compiler._truth,
    "literal": _Compiler._constant,
    "cast": _Compiler._timestamp,
    "neg": _Compiler._negate,
    "not": _Compiler._not,
    "is": _Compiler._is,
    "between": _Compiler._between,
    "in": _Compiler._in,
    "like": _Compiler._like,
    "escape": _Compiler._escape,
}
