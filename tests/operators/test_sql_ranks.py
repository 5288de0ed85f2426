"""The ranks of the operators in SQL strings are those of Spark, with each version of sqlglot.

Source: Spark's SqlBaseParser.g4, `valueExpression`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pyarrow as pa
import pytest

from headgate.errors import PlanError
from headgate.operators.sql.expressions import compile_expression
from headgate.operators.sql.sql_eval import SqlNode

SCHEMA = pa.schema({name: pa.int64() for name in "xyzw"} | {name: pa.bool_() for name in "abc"})
RANKS = {"*": 3, "/": 3, "%": 3, "div": 3, "+": 2, "-": 2, "=": 1, "<": 1, ">=": 1, "<>": 1, "<=>": 1}
ARITHMETIC = [operator for operator, rank in RANKS.items() if rank > 1]
#: Operands of all forms: some have remainders inside, or a minus before.
OPERANDS = (
    "x",
    "-y",
    "abs(z % w + 1)",
    "case when x + y % z = 0 then z % w else .5 % w end",
    "(x + y % 2)",
    "2L",
    "-.5",
)


def node(text: str) -> SqlNode | None:
    """Return what a SQL string compiles to, or None if its types do not fit."""
    try:
        return compile_expression(text, SCHEMA).root
    except PlanError as error:
        if not any(words in error.message for words in ("needs ", "cannot compare")):
            raise
        return None


def in_parentheses(operands: Sequence[str], operators: Sequence[str]) -> str:
    """Return the expression with parentheses around each operation. Operators of one rank group to the left."""
    if not operators:
        return operands[0]
    ranks = [RANKS[operator] for operator in operators]
    at = max(number for number, rank in enumerate(ranks) if rank == min(ranks))
    left = in_parentheses(operands[: at + 1], operators[:at])
    right = in_parentheses(operands[at + 1 :], operators[at + 1 :])
    return f"({left} {operators[at]} {right})"


@pytest.mark.parametrize("first", [0, 2, 4])
def test_operators_have_the_ranks_of_spark(first: int) -> None:
    cases = [*product(ARITHMETIC, RANKS), *product(RANKS, ARITHMETIC), *product("*%-", "*%-", "*%-")]
    compiled = 0
    for operators in cases:
        operands = [*OPERANDS, *OPERANDS][first : first + len(operators) + 1]
        plain = " ".join(part for pair in zip(operands, [*operators, ""], strict=True) for part in pair)
        wanted = node(in_parentheses(operands, operators))
        assert node(plain) == wanted, plain
        compiled += wanted is not None
    assert compiled > 80


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1 + x % 2", "1 + (x % 2)"), ("x % y * z", "(x % y) * z"), ("x % y % z", "(x % y) % z"),
        ("x % 2 = 0 and y % 2 = 1", "((x % 2) = 0) and ((y % 2) = 1)"), ("x in (y % 2, z)", "x in ((y % 2), z)"),
        ("x between y % 2 and z % 3 + 1", "x between (y % 2) and ((z % 3) + 1)"),
        ("not x % 2 = 0", "not ((x % 2) = 0)"),
        ("x - -y % z", "x - ((-y) % z)"), ("x % y is null", "(x % y) is null"), ("x % -y % z", "(x % (-y)) % z"),
        ("mod(x, y) % 2", "(mod(x, y)) % 2"), ("2 * (x + y) % z", "(2 * (x + y)) % z"),
    ],
)  # fmt: skip
def test_a_remainder_has_the_rank_of_a_product(text: str, same: str) -> None:
    assert compile_expression(text, SCHEMA).root == compile_expression(same, SCHEMA).root


@pytest.mark.parametrize("text", ["x %", "% x", "x % % y", "x % )", "(x % y", "x % y)", "case x % when", "x % y z"])
def test_a_mistake_beside_a_remainder_has_a_position(text: str) -> None:
    with pytest.raises(PlanError, match=r"SQL at position \d+: "):
        compile_expression(text, SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "a = b < c", "a = b = c", "a between b and c = a", "x < y = a", "a in (b, c) = a",
        "x = y between a and b", "a = b in (c)", "x = y like z",
    ],
)  # fmt: skip
def test_comparisons_of_comparisons_need_parentheses(text: str) -> None:
    """Spark groups them to the left, most other systems by rank."""
    with pytest.raises(PlanError, match="put parentheses around"):
        compile_expression(text, SCHEMA)


def test_comparisons_in_parentheses_can_be_compared() -> None:
    for text in ("(a = b) < c", "a = (x < y)", "a between (b = c) and (x = y)", "(a in (b)) <=> (x = y)"):
        compile_expression(text, SCHEMA)


def test_is_null_comes_before_a_comparison() -> None:
    """sqlglot writes the parentheses itself."""
    assert compile_expression("a is null = b", SCHEMA).root == compile_expression("(a is null) = b", SCHEMA).root
