"""The functions of numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.operators.sql import number_kernels as kernels
from headgate.operators.sql.function_arguments import Arguments, as_type
from headgate.operators.sql.function_table import Function
from headgate.operators.sql.sql_eval import Call, Literal, SqlNode
from headgate.operators.sql.sql_types import kind_of

_MOST = 38


def _real(function: Callable[..., Any]) -> Callable[[Arguments], SqlNode]:
    """Return the compiler of a NumPy function of floats."""

    def build(arguments: Arguments) -> SqlNode:
        operands = [arguments.real(index) for index in range(len(arguments))]
        return arguments.apply(partial(kernels.of_numbers, function), pa.float64(), *operands)

    return build


def _absolute(arguments: Arguments) -> SqlNode:
    node = arguments.number(0)
    if kind_of(node.type) == "integer":
        return Call("abs_checked", (as_type(node, pa.int64()),), pa.int64())
    return Call("abs", (node,), node.type)


def _round(arguments: Arguments) -> SqlNode:
    node, digits = arguments.number(0), arguments.whole(1) if len(arguments) > 1 else 0
    match kind_of(node.type):
        case "integer":
            node = as_type(node, pa.int64())
            return node if digits >= 0 else arguments.apply(_tens(digits), pa.int64(), node)
        case "decimal":
            return _rounded_decimal(arguments, node, digits, "half_towards_infinity")
    function = partial(kernels.of_numbers, partial(kernels.round_floats, digits=digits))
    return arguments.apply(function, pa.float64(), as_type(node, pa.float64()))


def _tens(digits: int) -> Callable[..., pa.Array]:
    return partial(kernels.round_integers, digits=digits)


def _rounded_decimal(arguments: Arguments, node: SqlNode, digits: int, mode: str) -> SqlNode:
    """Return a decimal rounded into the type that Spark gives it: one digit more before the point."""
    precision, scale = node.type.precision, node.type.scale
    if digits < 0:
        result = pa.decimal128(min(_MOST, max(precision - scale, -digits) + 1), 0)
    else:
        kept = min(scale, digits)
        result = pa.decimal128(min(_MOST, precision - scale + 1 + kept), kept)
    function = partial(kernels.round_decimals, digits=min(digits, scale), kind=result, mode=mode)
    return arguments.apply(function, result, node)


def _whole(mode: str, function: Callable[..., Any]) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        node = arguments.number(0)
        match kind_of(node.type):
            case "integer":
                return as_type(node, pa.int64())
            case "decimal":
                return _rounded_decimal(arguments, node, 0, mode)
        return arguments.apply(partial(kernels.of_numbers, function), pa.int64(), as_type(node, pa.float64()))

    return build


def _logarithm(function: Callable[..., Any]) -> Callable[[Arguments], SqlNode]:
    def build(arguments: Arguments) -> SqlNode:
        if len(arguments) == 2:
            return arguments.apply(kernels.log_of_base, pa.float64(), arguments.real(0), arguments.real(1))
        return arguments.apply(partial(kernels.log, function), pa.float64(), arguments.real(0))

    return build


def _modulo(arguments: Arguments) -> SqlNode:
    return arguments.compiler.arithmetic(arguments.tree, "remainder", *arguments.trees)


def _is_nan(arguments: Arguments) -> SqlNode:
    return Call("coalesce", (Call("is_nan", (arguments.real(0),), pa.bool_()), Literal(False, pa.bool_())), pa.bool_())


def _pi(_: Arguments) -> SqlNode:
    return Literal(np.pi, pa.float64())


def _positive_modulo(arguments: Arguments) -> SqlNode:
    rest = arguments.compiler.arithmetic(arguments.tree, "remainder", *arguments.trees)
    if kind_of(rest.type) == "decimal":
        arguments.refuse(None, "takes integers and floats; cast the decimals to double")
    operands = [arguments.compiler.coerce(arguments.node(index), rest.type, arguments.trees[index]) for index in (0, 1)]
    return arguments.apply(kernels.positive_remainder, rest.type, *operands)


NUMBER_FUNCTIONS = (
    Function("abs(x)", "the absolute value", _absolute, 1, 1),
    Function(
        "round(x[, digits])", "x rounded half away from zero; digits is an integer literal, also negative", _round, 1, 2
    ),
    Function("floor(x)", "the greatest integer that is not more than x", _whole("down", kernels.floor), 1, 1),
    Function(
        "ceil(x)",
        "the least integer that is not less than x",
        _whole("up", kernels.ceil),
        1,
        1,
        other_names=("ceiling",),
    ),
    Function("sign(x)", "-1.0, 0.0 or 1.0", _real(np.sign), 1, 1, other_names=("signum",)),
    Function("mod(a, b)", "the remainder, with the sign of a, as a % b", _modulo, 2, 2),
    Function("pmod(a, b)", "the remainder, which is positive for a positive b", _positive_modulo, 2, 2),
    Function("sqrt(x)", "the square root; NaN for a negative number", _real(np.sqrt), 1, 1),
    Function("cbrt(x)", "the cube root", _real(np.cbrt), 1, 1),
    Function("pow(x, y)", "x to the power of y", _real(kernels.power), 2, 2, other_names=("power",)),
    Function("exp(x)", "e to the power of x", _real(np.exp), 1, 1),
    Function("ln(x)", "the natural logarithm; null if x is not positive", _logarithm(np.log), 1, 1),
    Function("log([base, ]x)", "the logarithm, natural without a base", _logarithm(np.log), 1, 2),
    Function("log10(x)", "the logarithm to the base 10", _logarithm(np.log10), 1, 1),
    Function("log2(x)", "the logarithm to the base 2", _logarithm(kernels.log2), 1, 1),
    Function("sin(x)", "the sine of an angle in radians", _real(np.sin), 1, 1),
    Function("cos(x)", "the cosine", _real(np.cos), 1, 1),
    Function("tan(x)", "the tangent", _real(np.tan), 1, 1),
    Function("asin(x)", "the angle, in radians, whose sine is x", _real(np.arcsin), 1, 1),
    Function("acos(x)", "the angle whose cosine is x", _real(np.arccos), 1, 1),
    Function("atan(x)", "the angle whose tangent is x", _real(np.arctan), 1, 1),
    Function("atan2(y, x)", "the angle of the point (x, y)", _real(kernels.angle), 2, 2),
    Function("degrees(x)", "x radians, in degrees", _real(np.degrees), 1, 1),
    Function("radians(x)", "x degrees, in radians", _real(np.radians), 1, 1),
    Function("pi()", "3.14159...", _pi, 0, 0),
    Function("isnan(x)", "whether x is NaN; false for null", _is_nan, 1, 1),
)
