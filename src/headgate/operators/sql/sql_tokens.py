"""`checked_tokens` checks each token of a SQL string, and spells every special form as a call of a function.

sqlglot gives each function a class of its own, and these differ between its versions. Here, each call therefore has a
name that sqlglot does not know: `upper(s)` becomes `upper@0(s)`, where 0 is the position of the name. To sqlglot, such
a call is an `Anonymous` node. The forms `cast(x as int)`, `extract(year from t)`, `date '2024-01-31'` and `interval 1
day` become such calls too.

A word that names a column becomes a quoted identifier. A column may therefore be called `date` or `select`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from headgate.errors import PlanError
from headgate.operators.sql.sql_ranks import OPERAND_ENDS

ALLOWED = (
    "allowed are columns, literals, + - * / % div ||, comparisons, and, or, not, is [not] null, [not] in, "
    "[not] between, [not] like, [not] rlike, case, cast and the functions of the page 'SQL strings'; for anything "
    "else use map_batches"
)

_GRAMMAR = {
    *("AND", "OR", "NOT", "IS", "IN", "BETWEEN", "LIKE", "ESCAPE", "NULL", "TRUE", "FALSE", "STRING", "NUMBER"),
    *("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "PLUS", "DASH", "STAR", "SLASH", "MOD", "L_PAREN", "R_PAREN", "COMMA"),
    *("DPIPE", "NULLSAFE_EQ"),
}
#: Words that are operators where an operator can stand, and columns elsewhere.
_OPERATORS = {"DIV", "RLIKE"}
_CASE = {"WHEN", "THEN", "ELSE", "END"}
#: Matches the dot of a fraction such as `.5`, but not the dot of `table.column`.
_FRACTION = re.compile(r"(?<![\w`)])\.\d")
_WORD = re.compile(r"[^\W\d]\w*")
_TYPED_LITERALS = ("date", "timestamp", "interval")
#: The types of a number's suffix, as sqlglot spells them.
_SUFFIXES = {"L": "bigint", "D": "double", "F": "float", "S": "smallint", "Y": "tinyint", "BD": "decimal"}
#: Functions whose first argument is a unit of time, as a bare word.
_UNIT_FIRST = ("timestampadd", "timestampdiff", "date_add", "dateadd", "date_diff", "datediff")

_UNREPEATABLE = {"now", "current_timestamp", "current_date", "current_time", "rand", "random", "randn", "uuid"}

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
    """Return the error message for an unknown column. The message shows the nearest names and the known columns."""
    return f"no column {name!r}{_nearest(name, columns)}; the columns are: {', '.join(columns) or 'none'}"


def _nearest(name: str, known: Collection[str]) -> str:
    """Return a hint with the known names that are nearest to `name`, or an empty string."""
    import difflib  # few jobs have a mistake

    lowered = {other.lower(): other for other in known}
    near = [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.75)]
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def checked_tokens(text: str, tokens: list[Any], columns: Collection[str]) -> list[Any]:
    """Return the tokens of a SQL string with calls in place of special forms. Raises PlanError for a token that is not
    allowed."""
    return _Checker(text, tokens, columns).run()


class _Checker:
    def __init__(self, text: str, tokens: list[Any], columns: Collection[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._columns = columns
        self._at = 0
        self._out: list[Any] = []
        self._open_cases = 0
        #: For each open parenthesis, the name of the function that it belongs to, or "".
        self._calls: list[str] = []

    def run(self) -> list[Any]:
        while self._at < len(self._tokens):
            self._step(self._tokens[self._at])
        return self._out

    def _step(self, token: Any) -> None:
        kind, word = token.token_type.name, self._source(token).lower()
        following = self._kind(1)
        if kind == "STRING" and self._out and self._is_continued(token):
            self._join_strings(token)
        elif following == "DCOLON" and self._tokens[self._at + 1].start == token.start:
            self._suffixed(token)
        elif word in _TYPED_LITERALS and self._begins_literal(word):
            self._typed_literal(token, word)
        elif kind == "ALIAS" and self._calls and self._calls[-1] in ("cast", "try_cast"):
            self._cast_type(token)
        elif kind == "FROM" and self._calls and self._calls[-1] == "extract":
            self._put(token, "COMMA", ",")
        elif kind == "CASE" and word not in self._columns:
            self._open_cases += 1
            self._keep(token)
        elif kind in _CASE and self._open_cases:
            self._open_cases -= kind == "END"
            self._keep(token)
        elif kind in _GRAMMAR or (kind in _OPERATORS and self._follows_operand()) or self._is_fraction(token):
            self._parenthesis(kind)
            self._keep(token)
        elif self._is_unit(token):
            self._put(token, "STRING", word)
        elif following == "L_PAREN":
            self._call(token)
        else:
            self._column(token)

    # -- what stands at a place

    def _kind(self, ahead: int) -> str:
        """Return the kind of the token that is `ahead` tokens further, or an empty string after the last one."""
        at = self._at + ahead
        return self._tokens[at].token_type.name if at < len(self._tokens) else ""

    def _source(self, token: Any) -> str:
        return self._text[token.start : token.end + 1]

    def _is_continued(self, token: Any) -> bool:
        """Return whether this string continues the one before, as the second half of `'it''s'` does."""
        before = self._out[-1]
        return bool(before.token_type == token.token_type and before.end + 1 == token.start)

    def _follows_operand(self) -> bool:
        """Return whether an operator can stand here, also after a `not` as in `s not rlike 'a'`."""
        kinds = [token.token_type.name for token in self._out[-2:]]
        if kinds and kinds[-1] == "NOT":
            kinds.pop()
        return bool(kinds) and kinds[-1] in OPERAND_ENDS

    def _is_fraction(self, token: Any) -> bool:
        return _FRACTION.match(self._text, token.start) is not None

    def _begins_literal(self, word: str) -> bool:
        following = self._kind(1)
        if word != "interval" or following == "STRING":
            return following == "STRING"
        is_number = following == "NUMBER" or (following == "DASH" and self._kind(2) == "NUMBER")
        return is_number and word not in self._columns

    def _is_unit(self, token: Any) -> bool:
        """Return whether this word is a unit of time, as in `extract(year from t)` or `timestampadd(day, 1, t)`."""
        name = self._calls[-1] if self._calls and self._out[-1].token_type.name == "L_PAREN" else ""
        expected = {"extract": "FROM"}.get(name, "COMMA" if name in _UNIT_FIRST else None)
        if expected is None or self._kind(1) != expected or not _WORD.fullmatch(self._source(token)):
            return False
        return name in ("extract", "timestampadd", "timestampdiff") or self._source(token) not in self._columns

    # -- the next tokens

    def _keep(self, token: Any) -> None:
        self._out.append(token)
        self._at += 1

    def _put(self, origin: Any, kind: str, text: str, *, end: int | None = None) -> None:
        """Append one new token with the position of `origin`, or up to `end`, and go on to the next token."""
        self._add(origin, kind, text, end=end)
        self._at += 1

    def _add(self, origin: Any, kind: str, text: str, *, end: int | None = None) -> None:
        from sqlglot import Token, TokenType

        last = origin.end if end is None else end
        self._out.append(Token(TokenType[kind], text, origin.line, origin.col, origin.start, last))

    def _join_strings(self, token: Any) -> None:
        first = self._out.pop()
        quote = self._text[token.start]
        self._put(first, "STRING", first.text + quote + token.text, end=token.end)

    def _parenthesis(self, kind: str) -> None:
        if kind == "L_PAREN":
            self._calls.append("")
        elif kind == "R_PAREN" and self._calls:
            self._calls.pop()

    def _add_call(self, origin: Any, name: str, arguments: list[tuple[Any, str, str]]) -> None:
        self._add(origin, "VAR", f"{name}@{origin.start}")
        self._add(origin, "L_PAREN", "(")
        for index, (token, kind, text) in enumerate(arguments):
            if index:
                self._add(token, "COMMA", ",")
            self._add(token, kind, text)
        self._add(origin, "R_PAREN", ")")

    def _suffixed(self, token: Any) -> None:
        """Write `2L` as a cast. sqlglot turns it into the tokens `2`, `::` and `L`, which have one position."""
        suffix = self._tokens[self._at + 2].text
        if suffix not in _SUFFIXES:
            raise self._not_allowed(token)
        if suffix == "BD":
            self._add_call(token, "decimal", [(token, "STRING", token.text)])
        else:
            self._add_call(token, "cast", [(token, "NUMBER", token.text), (token, "STRING", _SUFFIXES[suffix])])
        self._at += 3

    def _typed_literal(self, token: Any, word: str) -> None:
        self._at += 1
        first = self._tokens[self._at]
        if word != "interval":
            self._at += 1
            return self._add_call(token, word, [(first, "STRING", first.text)])
        parts = []
        while True:
            sign = "-" if self._kind(0) == "DASH" and self._kind(1) == "NUMBER" else ""
            self._at += bool(sign)
            if self._kind(0) not in ("STRING", "NUMBER"):
                break
            parts.append(sign + self._tokens[self._at].text)
            self._at += 1
            if self._at < len(self._tokens) and _WORD.fullmatch(self._source(self._tokens[self._at])):
                if self._kind(0) in _GRAMMAR | _OPERATORS | _CASE:
                    break
                parts.append(self._source(self._tokens[self._at]))
                self._at += 1
        return self._add_call(token, word, [(first, "STRING", " ".join(parts))])

    def _cast_type(self, token: Any) -> None:
        """Write the type of `cast(x as decimal(9, 2))` as a string: `cast(x, 'decimal(9, 2)')`."""
        end, depth = self._at + 1, 0
        while end < len(self._tokens):
            kind = self._tokens[end].token_type.name
            depth += (kind == "L_PAREN") - (kind == "R_PAREN")
            if depth < 0:
                break
            end += 1
        if end == self._at + 1:
            raise sql_error(self._text, token.end, "the type is missing, as in cast(x as bigint)")
        first, last = self._tokens[self._at + 1], self._tokens[end - 1]
        self._add(token, "COMMA", ",")
        self._add(first, "STRING", self._text[first.start : last.end + 1], end=last.end)
        self._at = end

    def _call(self, token: Any) -> None:
        from headgate.operators.sql.functions import FUNCTIONS

        name = self._source(token)
        if name.lower() not in FUNCTIONS:
            problem = f"no function {name!r}{_nearest(name, FUNCTIONS)}"
            if name.lower() in _UNREPEATABLE:
                problem = f"{name!r} would have another value when rows are read again after a failure"
            raise sql_error(self._text, token.start, f"{problem}; {ALLOWED}")
        self._put(token, "VAR", f"{name.lower()}@{token.start}")
        self._calls.append(name.lower())
        self._keep(self._tokens[self._at])

    def _column(self, token: Any) -> None:
        """Put a quoted column name. Raises PlanError when the token does not name a column."""
        from sqlglot import TokenType

        source = self._source(token)
        quoted = token.token_type == TokenType.IDENTIFIER
        name = token.text if quoted else source
        if not quoted and (not _WORD.fullmatch(source) or token.text.lower() != source.lower()):
            raise self._not_allowed(token)
        if name not in self._columns:
            is_keyword = token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER)
            problem = unknown_column(name, self._columns) + (f"; {ALLOWED}" if is_keyword else "")
            raise sql_error(self._text, token.start, problem)
        self._put(token, "IDENTIFIER", name, end=token.end)

    def _not_allowed(self, token: Any) -> PlanError:
        return sql_error(self._text, token.start, f"{self._source(token)!r} is not allowed here; {ALLOWED}")
