"""`parse` turns a SQL string into sqlglot's syntax tree. An error shows the exact position of the mistake.

`parse` checks the tokens before it parses them, because each token still has its position. A token outside the small
grammar is an error. A word that names a column becomes a quoted identifier. A column may therefore be called `date` or
`select`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from headgate.errors import PlanError

if TYPE_CHECKING:
    from sqlglot import exp

ALLOWED = (
    "allowed are columns, literals, timestamp '...', + - * / %, comparisons, and, or, not, is [not] null, [not] in, "
    "[not] between, [not] like and parentheses; for anything else use map_batches"
)

_GRAMMAR = {
    *("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "ESCAPE", "NULL", "TRUE", "FALSE", "STRING", "NUMBER"),
    *("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "PLUS", "DASH", "STAR", "SLASH", "MOD", "L_PAREN", "R_PAREN", "COMMA"),
}
#: Matches the dot of a fraction such as `.5`, but not the dot of `table.column`.
_FRACTION = re.compile(r"(?<![\w`)])\.\d")


#: How many characters an error shows on each side of the mistake's position.
_SHOWN = 100


def sql_error(text: str, position: int, problem: str) -> PlanError:
    """Return a PlanError that shows `text` with a mark under the character at `position`.

    `position` counts from 0. The message counts from 1.
    """
    begin = text.rfind("\n", 0, position) + 1
    line = text[begin:].partition("\n")[0]
    if position - begin > _SHOWN:  # show only the part of a long line near the position
        begin = position - _SHOWN
        line = f"...{text[begin + 3 :]}".partition("\n")[0]
    line = line if len(line) <= 2 * _SHOWN else f"{line[: 2 * _SHOWN]}..."
    mark = " " * (position - begin) + "^"
    return PlanError(f"SQL at position {position + 1}: {problem}\n  {line}\n  {mark}")


def unknown_column(name: str, columns: Collection[str]) -> str:
    """Return the error message for an unknown column. The message lists the known columns."""
    return f"no column {name!r}; the columns are: {', '.join(columns) or 'none'}"


def parse(text: str, columns: Collection[str]) -> exp.Expr:
    """Return the syntax tree of `text` in Spark's dialect. Raises PlanError for text outside the grammar."""
    # The import of sqlglot takes 0.1 s, and only jobs with SQL strings need it.
    from sqlglot import Dialect, exp
    from sqlglot.errors import ParseError, TokenError

    if not isinstance(text, str):
        raise PlanError(f"expected a SQL string, got {type(text).__name__}")
    if not text.strip():
        raise PlanError(f"the SQL string is empty; {ALLOWED}")
    dialect = Dialect.get_or_raise("spark")
    try:
        tokens = _checked(text, dialect.tokenize(text), columns)
        trees = dialect.parser(error_message_context=len(text)).parse_into(exp.Condition, tokens, text)
    except TokenError:
        raise PlanError(f"SQL: a quote or comment is not closed in {text!r}") from None
    except RecursionError:
        raise PlanError(f"SQL: {text[:60]!r}... is nested too deeply") from None
    except ParseError as error:
        raise _syntax_error(text, error.errors) from None
    if len(trees) != 1 or trees[0] is None:
        raise sql_error(text, 0, f"not one expression; {ALLOWED}")
    return trees[0]


def position_of(node: exp.Expr) -> int:
    """Return the position in the text, counted from 0, where a node begins: the least position of the node's parts."""
    return min((part.meta["start"] for part in node.walk() if "start" in part.meta), default=0)


def _checked(text: str, tokens: list[Any], columns: Collection[str]) -> list[Any]:
    """Return the tokens, with quoted column names, and with a string such as `'it''s'` as one token.

    Raises PlanError for a token outside the grammar.
    """
    out: list[Any] = []
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        kind = token.token_type.name
        if kind == "STRING" and out and out[-1].token_type == token.token_type and out[-1].end + 1 == token.start:
            quote = text[token.start]
            out[-1] = _token(out[-1], token.token_type, out[-1].text + quote + token.text, end=token.end)
        elif kind in _GRAMMAR or _FRACTION.match(text, token.start) or _is_timestamp(token, following):
            out.append(token)
        else:
            out.append(_column(text, token, following, columns))
    return out


def _column(text: str, token: Any, following: Any, columns: Collection[str]) -> Any:
    """Return the token as a quoted column name. Raises PlanError when it does not name a column."""
    from sqlglot import TokenType

    source = text[token.start : token.end + 1]
    quoted = token.token_type == TokenType.IDENTIFIER
    name = token.text if quoted else source
    if not quoted and (not re.fullmatch(r"[^\W\d]\w*", source) or token.text.lower() != source.lower()):
        raise sql_error(text, token.start, f"{source!r} is not allowed here; {ALLOWED}")
    if token.token_type == TokenType.CASE and name not in columns:
        raise sql_error(text, token.start, f"CASE is not supported; {ALLOWED}")
    if following is not None and following.token_type == TokenType.L_PAREN:
        raise sql_error(text, token.start, f"{source!r}: functions and subqueries are not allowed; {ALLOWED}")
    if name not in columns:
        is_keyword = token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER)
        raise sql_error(text, token.start, unknown_column(name, columns) + (f"; {ALLOWED}" if is_keyword else ""))
    return _token(token, TokenType.IDENTIFIER, name, end=token.end)


def _is_timestamp(token: Any, following: Any) -> bool:
    """Return whether the token is the word `timestamp` before a string, as in `timestamp '...'`."""
    return token.text.lower() == "timestamp" and following is not None and following.token_type.name == "STRING"


def _token(origin: Any, token_type: Any, text: str, *, end: int) -> Any:
    from sqlglot import Token

    return Token(token_type, text, origin.line, origin.col, origin.start, end)


def _syntax_error(text: str, errors: list[dict[str, Any]]) -> PlanError:
    """Return sqlglot's first error as a PlanError with its position."""
    if not errors:
        return PlanError(f"SQL: {text!r} is not an expression; {ALLOWED}")
    first = errors[0]
    complaint = re.sub(r"^Required keyword: .*", "an operand is missing", str(first["description"]))
    return sql_error(text, len(str(first["start_context"])), f"{complaint} at {first['highlight']!r}; {ALLOWED}")
