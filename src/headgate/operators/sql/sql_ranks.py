"""`group_remainders` gives `%` the precedence of `*`, as in Spark.

sqlglot before 30.18 gives `%` the precedence of `+`: it reads `1 + a % 2` as `(1 + a) % 2`. Parentheses around each
remainder and the factors before it make all versions read the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

#: The kinds of tokens that are an operand, or its last token.
OPERAND_ENDS: Final = {"IDENTIFIER", "NUMBER", "STRING", "NULL", "TRUE", "FALSE", "R_PAREN", "END"}
_OPENING: Final = {"L_PAREN", "CASE"}
_CLOSING: Final = {"R_PAREN", "END"}
#: The kinds with which an operand can begin. A function's name is a VAR, and `.5` begins with a DOT.
_BEGINNINGS: Final = (OPERAND_ENDS | _OPENING | {"VAR", "DASH", "PLUS", "DOT"}) - _CLOSING
_FACTORS: Final = {"STAR", "SLASH", "DIV", "MOD"}


@dataclass(slots=True)
class _Product:
    """Factors with `*`, `/`, `%` and `div` between them. `begin` is the position of the first factor in the output, or
    None before that factor. `is_remainder` says whether the next operand is the right operand of a `%`."""

    begin: int | None = None
    is_remainder: bool = False


def group_remainders(tokens: list[Any]) -> list[Any]:
    """Return the tokens with parentheses around each `%`, its right operand, and the factors before it.

    Calls and literals have the forms that `checked_tokens` gives them. Where an operand is missing, nothing changes.
    """
    out: list[Any] = []
    #: The products whose last operand is an open parenthesis, call or `case`.
    outer: list[_Product] = []
    product = _Product()
    for token in tokens:
        kind = token.token_type.name
        product = outer.pop() if kind in _CLOSING and outer else _continued(product, kind, out)
        out.append(token)
        if kind in _OPENING:
            outer.append(product)
            product = _Product()
        elif kind in OPERAND_ENDS and product.is_remainder and product.begin is not None:
            out.insert(product.begin, _parenthesis(out[product.begin], "L_PAREN", "("))
            out.append(_parenthesis(token, "R_PAREN", ")"))
            product.is_remainder = False
    return out


def _continued(product: _Product, kind: str, out: list[Any]) -> _Product:
    """Return the product to which the next token, of this kind, belongs: the same one or a new one."""
    if out and out[-1].token_type.name in OPERAND_ENDS:
        return _Product(product.begin, kind == "MOD") if kind in _FACTORS else _Product()
    if kind not in _BEGINNINGS:
        return _Product()
    return _Product(len(out), False) if product.begin is None else product


def _parenthesis(origin: Any, kind: str, text: str) -> Any:
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, origin.line, origin.col, origin.start, origin.end)
