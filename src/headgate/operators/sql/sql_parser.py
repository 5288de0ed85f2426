"""From a SQL string to sqlglot's syntax tree, with every refusal at its exact position.

The tokens are looked at before they are parsed: what is not in the small grammar is refused there, where its position
is known, and words that name a column become quoted identifiers, so that a column may be called `date` or `select`.
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
#: The dot in `.5`, no column's.
_FRACTION = re.compile(r"(?<![\w`)])\.\d")


#: Characters of a line that are shown before a position, and behind it.
_SHOWN = 100


def sql_error(text: str, position: int, problem: str) -> PlanError:
    """A PlanError that shows `text` with a mark under `position` (counted from 0, said from 1)."""
    begin = text.rfind("\n", 0, position) + 1
    line = text[begin:].partition("\n")[0]
    if position - begin > _SHOWN:  # of a long line what is around the position
        begin = position - _SHOWN
        line = f"...{text[begin + 3 :]}".partition("\n")[0]
    line = line if len(line) <= 2 * _SHOWN else f"{line[: 2 * _SHOWN]}..."
    mark = " " * (position - begin) + "^"
    return PlanError(f"SQL at position {position + 1}: {problem}\n  {line}\n  {mark}")


def unknown_column(name: str, columns: Collection[str]) -> str:
    """The words for a column that is not there, with those that are."""
    return f"no column {name!r}; the columns are: {', '.join(columns) or 'none'}"


def parse(text: str, columns: Collection[str]) -> exp.Expr:
    """The syntax tree of `text` in Spark's dialect. Raises PlanError for what is not in the grammar."""
    # sqlglot takes 0.1 s to import, and only those who write SQL strings need it.
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
    """Where the node begins, counted from 0, as near as its parts know it."""
    return min((part.meta["start"] for part in node.walk() if "start" in part.meta), default=0)


def _checked(text: str, tokens: list[Any], columns: Collection[str]) -> list[Any]:
    """The tokens of the grammar, columns quoted and `'it''s'` made one string; raises PlanError for any other."""
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
    """The token as a quoted column name; raises PlanError when it is none."""
    from sqlglot import TokenType

    source = text[token.start : token.end + 1]
    quoted = token.token_type == TokenType.IDENTIFIER
    name = token.text if quoted else source
    if not quoted and (not re.fullmatch(r"[^\W\d]\w*", source) or token.text.lower() != source.lower()):
        raise sql_error(text, token.start, f"{source!r} is not allowed here; {ALLOWED}")
    if following is not None and following.token_type == TokenType.L_PAREN:
        raise sql_error(text, token.start, f"{source!r}: functions and subqueries are not allowed; {ALLOWED}")
    if name not in columns:
        is_keyword = token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER)
        raise sql_error(text, token.start, unknown_column(name, columns) + (f"; {ALLOWED}" if is_keyword else ""))
    return _token(token, TokenType.IDENTIFIER, name, end=token.end)


def _is_timestamp(token: Any, following: Any) -> bool:
    """The word in `timestamp '...'`."""
    return token.text.lower() == "timestamp" and following is not None and following.token_type.name == "STRING"


def _token(origin: Any, token_type: Any, text: str, *, end: int) -> Any:
    from sqlglot import Token

    return Token(token_type, text, origin.line, origin.col, origin.start, end)


def _syntax_error(text: str, errors: list[dict[str, Any]]) -> PlanError:
    """sqlglot's first complaint, with its position."""
    if not errors:
        return PlanError(f"SQL: {text!r} is not an expression; {ALLOWED}")
    first = errors[0]
    complaint = re.sub(r"^Required keyword: .*", "an operand is missing", str(first["description"]))
    return sql_error(text, len(str(first["start_context"])), f"{complaint} at {first['highlight']!r}; {ALLOWED}")
