"""`Compiler`: from sqlglot's syntax tree to nodes that evaluate themselves, with a type for each node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pyarrow as pa

from headgate.operators.decimal_types import arithmetic_type, as_decimal, literal_type
from headgate.operators.sql.function_arguments import Arguments
from headgate.operators.sql.sql_calls import CaseWhen
from headgate.operators.sql.sql_decimal import CompareDecimals, DecimalCall
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
from headgate.operators.sql.sql_parser import position_of
from headgate.operators.sql.sql_tokens import ALLOWED, sql_error
from headgate.operators.sql.sql_types import alternatives_type, common_type, comparable_decimals, kind_of

if TYPE_CHECKING:
    from sqlglot import exp

#: Python cannot pickle much deeper trees.
_MAX_DEPTH = 100
_INT64 = range(-(1 << 63), 1 << 63)
_MOST_DIGITS = 76
_BOOL = pa.bool_()
_INT64_TYPE = pa.int64()
_TIMES = {"timestamp", "interval", "months"}


class Compiler:
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
            self.refuse(tree, f"nested more than {_MAX_DEPTH} deep; 'in' takes long lists of values")
        node = self._compile(tree)
        self._depth -= 1
        return node

    def _compile(self, tree: exp.Expr) -> SqlNode:
        kind = tree.key
        if kind in _PREDICATES and kind != "escape":
            self._refuse_chain(tree)
        if kind in _ARITHMETIC:
            return self._binary(tree, _ARITHMETIC[kind])
        if kind in _COMPARISONS:
            left, right = self.common([tree.this, tree.expression])
            return _compare(_COMPARISONS[kind], left, right)
        if kind in ("and", "or"):
            return self._logical(tree, f"{kind}_kleene")
        handler = _HANDLERS.get(kind)
        if handler is None:
            self.refuse(tree, f"{tree.sql('spark')!r} is not allowed; {ALLOWED}")
        return handler(self, tree)

    def _refuse_chain(self, tree: exp.Expr) -> None:
        """Raise PlanError if an operand is a comparison without parentheses: Spark groups such chains to the left."""
        for operand in tree.iter_expressions():
            if operand.key in _PREDICATES:
                self.refuse(operand, f"put parentheses around {operand.sql('spark')!r}, which is compared")

    def refuse(self, tree: exp.Expr, problem: str) -> NoReturn:
        raise sql_error(self._text, position_of(tree), problem)

    # -- leaves

    def _paren(self, tree: exp.Expr) -> SqlNode:
        return self.node(tree.this)

    def _column(self, tree: exp.Expr) -> SqlNode:
        if tree.args.get("table") is not None:
            self.refuse(tree, f"write a column without a table name; {ALLOWED}")
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
                self.refuse(tree, f"{digits} does not fit int64; write {digits}.0 for a float64")
            return Literal(int(digits), pa.int64())
        try:
            return Literal(float(digits), pa.float64(), _exact(digits))
        except ValueError:
            self.refuse(tree, f"{digits!r} is not a number")

    # -- operators

    def _binary(self, tree: exp.Expr, kernel: str) -> SqlNode:
        """Compile arithmetic on numbers, or a sum or difference of times."""
        if kernel in ("add", "subtract"):
            left, right = self.node(tree.this), self.node(tree.expression)
            if not _TIMES.isdisjoint((kind_of(left.type), kind_of(right.type))):
                return self._times(tree, left, right, kernel == "add")
        return self.arithmetic(tree, kernel, tree.this, tree.expression)

    def _times(self, tree: exp.Expr, left: SqlNode, right: SqlNode, is_sum: bool) -> SqlNode:
        from headgate.operators.sql.time_functions import time_arithmetic

        node = time_arithmetic(left, right, is_sum)
        if node is None:
            sign = "+" if is_sum else "-"
            self.refuse(
                tree, f"{left.type} {sign} {right.type} is not possible; write t + interval 90 minutes, or t - t"
            )
        return node

    def arithmetic(self, tree: exp.Expr, kernel: str, first: exp.Expr, second: exp.Expr) -> SqlNode:
        """Compile `add`, `subtract`, `multiply`, `divide` or `remainder` of two numbers. `tree` is the whole
        operation."""
        left, right = _align_decimals([self._numeric(first), self._numeric(second)])
        if {kind_of(left.type), kind_of(right.type)} in ({"decimal"}, {"decimal", "integer"}):
            return self._decimal(tree, kernel, left, right)
        if (folded := _folded(kernel, left, right)) is not None:
            return folded
        both_int = kind_of(left.type) == kind_of(right.type) == "integer"
        result = pa.int64() if both_int and kernel != "divide" else pa.float64()
        left, right = self.coerce(left, result, tree), self.coerce(right, result, tree)
        if kernel in ("divide", "remainder"):
            return Call(kernel, (left, NullIfZero(right, result)), result)
        return Call(f"{kernel}_checked" if both_int else kernel, (left, right), result)

    def _decimal(self, tree: exp.Expr, kernel: str, left: SqlNode, right: SqlNode) -> SqlNode:
        left, right = (self.coerce(node, as_decimal(node.type), tree) for node in (left, right))
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
        return Call("negate_checked" if integer else "negate", (self.coerce(operand, result, tree),), result)

    def _logical(self, tree: exp.Expr, kernel: str) -> SqlNode:
        """Compile a chain of one operator into a balanced tree, so that Python can pickle a chain of thousands of
        operands."""
        nodes = [self.boolean(part) for part in tree.flatten()]
        while len(nodes) > 1:
            pairs = [tuple(nodes[start : start + 2]) for start in range(0, len(nodes), 2)]
            nodes = [Call(kernel, pair, _BOOL) if len(pair) == 2 else pair[0] for pair in pairs]
        return nodes[0]

    def _not(self, tree: exp.Expr) -> SqlNode:
        return _invert(self.boolean(tree.this))

    def _is(self, tree: exp.Expr) -> SqlNode:
        if tree.expression.key != "null":
            self.refuse(tree, f"only 'is null' and 'is not null' are allowed; {ALLOWED}")
        return Call("is_null", (self.node(tree.this),), _BOOL)

    def _between(self, tree: exp.Expr) -> SqlNode:
        value, low, high = self.common([tree.this, tree.args["low"], tree.args["high"]])
        return Call("and_kleene", (_compare("greater_equal", value, low), _compare("less_equal", value, high)), _BOOL)

    def _in(self, tree: exp.Expr) -> SqlNode:
        if not tree.expressions:
            self.refuse(tree, "'in' takes a list of values in parentheses, with at least one")
        operand, *values = self.common([tree.this, *tree.expressions])
        if all(isinstance(value, Literal) for value in values):
            known = tuple(value for value in values if isinstance(value, Literal) and value.value is not None)
            fitting = tuple(value for value in known if _fits(value, operand.type))  # no other value can match
            return InLiterals(operand, fitting, len(known) < len(values), _BOOL)
        is_in = _compare("equal", operand, values[0])
        for value in values[1:]:
            is_in = Call("or_kleene", (is_in, _compare("equal", operand, value)), _BOOL)
        return is_in

    def _like(self, tree: exp.Expr, escape: str = "\\") -> SqlNode:
        operand, pattern = self.node(tree.this), tree.expression
        if kind_of(operand.type) not in ("string", "null"):
            self.refuse(tree, f"'like' needs a string, not {operand.type}")
        if pattern.key != "literal" or not pattern.is_string:
            self.refuse(pattern, "the pattern of 'like' must be a string literal")
        arrow_pattern = self._pattern(pattern, escape)
        result = Like(self.coerce(operand, common_type([operand.type, pa.string()]), tree), arrow_pattern, _BOOL)
        return _invert(result) if tree.args.get("negate") else result

    def _escape(self, tree: exp.Expr) -> SqlNode:
        escape = tree.expression
        if tree.this.key != "like" or escape.key != "literal" or not escape.is_string or len(escape.this) != 1:
            self.refuse(escape, "'escape' follows a 'like' and takes one character, as in like '50!%' escape '!'")
        return self._like(tree.this, escape.this)

    def _pattern(self, tree: exp.Expr, escape: str) -> str:
        """Return the pattern with a backslash, which is Arrow's escape character, instead of `escape`."""
        out, characters = [], iter(str(tree.this))
        for character in characters:
            if character == escape:
                following = next(characters, "")
                if following not in ("%", "_", escape):
                    self.refuse(tree, f"the escape character {escape!r} must stand before %, _ or itself")
                out.append(following if following not in "%_\\" else f"\\{following}")
            else:
                out.append("\\\\" if character == "\\" else character)
        return "".join(out)

    # -- functions and case

    def _function(self, tree: exp.Expr) -> SqlNode:
        from headgate.operators.sql.functions import FUNCTIONS

        name = str(tree.this).partition("@")[0].lower()
        return FUNCTIONS[name].call(Arguments(self, name, tree, tree.expressions))

    def _concatenate(self, tree: exp.Expr) -> SqlNode:
        from headgate.operators.sql.functions import FUNCTIONS

        return FUNCTIONS["concat"].call(Arguments(self, "||", tree, list(tree.flatten())))

    def _matches(self, tree: exp.Expr) -> SqlNode:
        from headgate.operators.sql.functions import FUNCTIONS

        return FUNCTIONS["regexp_like"].call(Arguments(self, "rlike", tree, [tree.this, tree.expression]))

    def _case(self, tree: exp.Expr) -> SqlNode:
        branches = tree.args["ifs"]
        if tree.this is None:
            conditions = [self.boolean(branch.this) for branch in branches]
        else:
            conditions = [self.equal(tree.this, branch.this) for branch in branches]
        trees = [branch.args["true"] for branch in branches]
        default = tree.args.get("default")
        values = self.alternatives(trees if default is None else [*trees, default])
        if default is None:
            values.append(Literal(None, values[0].type))
        return CaseWhen(tuple(conditions), tuple(values), values[0].type)

    def _whole_quotient(self, tree: exp.Expr) -> SqlNode:
        nodes = [self.node(part) for part in (tree.this, tree.expression)]
        for part, node in zip((tree.this, tree.expression), nodes, strict=True):
            if kind_of(node.type) not in ("integer", "null"):
                self.refuse(part, f"{part.sql('spark')} is {node.type}: div needs integers")
        left, right = (self.coerce(node, _INT64_TYPE, tree) for node in nodes)
        return Call("divide_checked", (left, NullIfZero(right, _INT64_TYPE)), _INT64_TYPE)

    def _same(self, tree: exp.Expr) -> SqlNode:
        """Compile `<=>`: true for two nulls, false for one."""
        left, right = self.common([tree.this, tree.expression])
        both_null = Call("and", (Call("is_null", (left,), _BOOL), Call("is_null", (right,), _BOOL)), _BOOL)
        return Call("coalesce", (_compare("equal", left, right), both_null), _BOOL)

    def equal(self, first: exp.Expr, second: exp.Expr) -> SqlNode:
        left, right = self.common([first, second])
        return _compare("equal", left, right)

    def alternatives(self, trees: Sequence[exp.Expr]) -> list[SqlNode]:
        """Compile values of which each row gets one, as those of `case`, and cast them to one type."""
        nodes = _align_decimals([self.node(tree) for tree in trees])
        target = alternatives_type([node.type for node in nodes])
        if target is None:
            shown = " and ".join(dict.fromkeys(f"{node.type}" for node in nodes))
            too_long = comparable_decimals([node.type for node in nodes]) is not None
            reason = ", and a decimal for all of them needs more than 76 digits" if too_long else ""
            self.refuse(trees[0], f"the values have the types {shown}{reason}; cast them to one type")
        return [self.coerce(node, target, tree) for node, tree in zip(nodes, trees, strict=True)]

    # -- operands

    def _numeric(self, tree: exp.Expr) -> SqlNode:
        node = self.node(tree)
        if kind_of(node.type) not in ("integer", "decimal", "float", "null"):
            self.refuse(tree, f"{tree.sql('spark')} is {node.type}: arithmetic needs integers, decimals or floats")
        return node

    def boolean(self, tree: exp.Expr) -> SqlNode:
        node = self.node(tree)
        if kind_of(node.type) not in ("boolean", "null"):
            self.refuse(tree, f"{tree.sql('spark')} is {node.type}: and, or, not need conditions")
        return self.coerce(node, _BOOL, tree)

    def common(self, trees: Sequence[exp.Expr]) -> list[SqlNode]:
        """Compile operands of comparisons and cast them to their common type.

        Decimals whose common type would need more than 76 digits keep their own types. Raises PlanError if the operands
        cannot be compared.
        """
        nodes = _align_decimals([self.node(tree) for tree in trees])
        target = common_type([node.type for node in nodes])
        targets = comparable_decimals([node.type for node in nodes]) if target is None else [target] * len(nodes)
        if targets is None:
            shown = " with ".join(dict.fromkeys(f"{node.type}" for node in nodes))
            hint = "; write times as timestamp '...'" if any(pa.types.is_timestamp(node.type) for node in nodes) else ""
            self.refuse(trees[0], f"cannot compare {shown}: types are not converted{hint}")
        return [self.coerce(*each) for each in zip(nodes, targets, trees, strict=True)]

    def coerce(self, node: SqlNode, target: pa.DataType, tree: exp.Expr) -> SqlNode:
        if node.type.equals(target):
            return node
        if not isinstance(node, Literal) or pa.types.is_date(node.type):
            return Cast(node, target)
        value = float(node.value) if pa.types.is_floating(target) and node.value is not None else node.value
        try:
            pa.scalar(value, target)
        except pa.ArrowInvalid as error:
            self.refuse(tree, f"{node.value} cannot be compared with {target}: {error}")
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
    if not left.type.equals(right.type):
        return CompareDecimals(operator, left, right, _BOOL)
    return Call(operator, (left, right), _BOOL)


def _fits(literal: Literal, target: pa.DataType) -> bool:
    """Return whether `target` can hold the value of a literal exactly."""
    if literal.type.equals(target):
        return True
    try:
        pa.scalar(literal.value, target)
    except pa.ArrowInvalid:
        return False
    return True


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
_HANDLERS: dict[str, Callable[[Compiler, exp.Expr], SqlNode]] = {
    "paren": Compiler._paren,
    "column": Compiler._column,
    "null": Compiler._null,
    "boolean": Compiler._truth,
    "literal": Compiler._constant,
    "anonymous": Compiler._function,
    "dpipe": Compiler._concatenate,
    "regexplike": Compiler._matches,
    "case": Compiler._case,
    "intdiv": Compiler._whole_quotient,
    "nullsafeeq": Compiler._same,
    "neg": Compiler._negate,
    "not": Compiler._not,
    "is": Compiler._is,
    "between": Compiler._between,
    "in": Compiler._in,
    "like": Compiler._like,
    "escape": Compiler._escape,
}
#: The comparisons, which cannot be operands of each other without parentheses.
_PREDICATES: Final = {*_COMPARISONS, "nullsafeeq", "between", "in", "like", "regexplike", "escape"}
