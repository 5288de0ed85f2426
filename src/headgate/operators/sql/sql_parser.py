"""`parse` turns a SQL string into sqlglot's syntax tree. An error shows the exact position of the mistake.

`parse` checks the tokens before it parses them (`sql_tokens`), because each token still has its position.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from headgate.errors import PlanError
from headgate.operators.sql.sql_ranks import group_remainders
from headgate.operators.sql.sql_tokens import ALLOWED, checked_tokens, sql_error

if TYPE_CHECKING:
    from sqlglot import exp


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
        tokens = group_remainders(checked_tokens(text, dialect.tokenize(text), columns))
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


def _syntax_error(text: str, errors: list[dict[str, Any]]) -> PlanError:
    """Return sqlglot's first error as a PlanError with its position."""
    if not errors:
        return PlanError(f"SQL: {text!r} is not an expression; {ALLOWED}")
    first = errors[0]
    complaint = re.sub(r"^Required keyword: .*", "an operand is missing", str(first["description"]))
    return sql_error(text, len(str(first["start_context"])), f"{complaint} at {first['highlight']!r}; {ALLOWED}")
