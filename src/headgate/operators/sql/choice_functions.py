"""The functions that choose between values or change their type."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from functools import partial

import pyarrow as pa

from headgate.operators.decimal_types import literal_type
from headgate.operators.sql.casts import cast_node, named_type
from headgate.operators.sql.function_arguments import Arguments
from headgate.operators.sql.function_table import Function
from headgate.operators.sql.number_kernels import extreme
from headgate.operators.sql.sql_calls import CaseWhen
from headgate.operators.sql.sql_eval import Call, Literal, SqlNode


def _cast(arguments: Arguments, *, strict: bool) -> SqlNode:
    text = arguments.text(1)
    target = named_type(text)
    if target is None:
        arguments.refuse(1, f"no type {text!r}; write bigint, double, decimal(9, 2), string, date, timestamp ...")
    node = arguments.node(0)
    result = cast_node(node, target, strict=strict)
    if result is None:
        arguments.refuse(0, f"a value of type {node.type} cannot become {text}")
    return result


def _if(arguments: Arguments) -> SqlNode:
    condition = arguments.compiler.boolean(arguments.trees[0])
    values = arguments.compiler.alternatives(arguments.trees[1:])
    return CaseWhen((condition,), tuple(values), values[0].type)


def _if_valid(arguments: Arguments) -> SqlNode:
    values = arguments.compiler.alternatives(arguments.trees[1:])
    return CaseWhen((Call("is_valid", (arguments.node(0),), pa.bool_()),), tuple(values), values[0].type)


def _coalesce(arguments: Arguments) -> SqlNode:
    values = arguments.compiler.alternatives(arguments.trees)
    return Call("coalesce", tuple(values), values[0].type)


def _null_if(arguments: Arguments) -> SqlNode:
    value = arguments.node(0)
    return CaseWhen((arguments.compiler.equal(*arguments.trees),), (Literal(None, value.type), value), value.type)


def _extreme(arguments: Arguments, *, greatest: bool) -> SqlNode:
    values: Sequence[SqlNode] = arguments.compiler.alternatives(arguments.trees)
    return arguments.apply(partial(extreme, greatest), values[0].type, *values)


def _decimal(arguments: Arguments) -> SqlNode:
    text = arguments.text(0)
    try:
        value = Decimal(text)
        return Literal(value, literal_type(value))
    except (InvalidOperation, pa.ArrowInvalid, ValueError, OverflowError):
        arguments.refuse(0, f"{text!r} is not a decimal of at most 76 digits, such as 1.50BD")


CHOICE_FUNCTIONS = (
    Function(
        "cast(x as type)",
        "x in another type; null if x is a text that has no such value",
        partial(_cast, strict=False),
        2,
        2,
    ),
    Function(
        "try_cast(x as type)",
        "as cast, but null also for a number that does not fit",
        partial(_cast, strict=True),
        2,
        2,
    ),
    Function(
        "coalesce(a, b, ...)", "the first value that is not null", _coalesce, 1, None, other_names=("nvl", "ifnull")
    ),
    Function("if(condition, a, b)", "a if the condition is true, or else b", _if, 3, 3),
    Function("nullif(a, b)", "null if a equals b, or else a", _null_if, 2, 2),
    Function("nvl2(x, a, b)", "a if x is not null, or else b", _if_valid, 3, 3),
    Function(
        "greatest(a, b, ...)",
        "the greatest value that is not null; NaN is greater than any number",
        partial(_extreme, greatest=True),
        2,
        None,
    ),
    Function("least(a, b, ...)", "the least value that is not null", partial(_extreme, greatest=False), 2, None),
    Function("decimal('1.50')", "the decimal 1.50, as the literal 1.50BD", _decimal, 1, 1),
)
