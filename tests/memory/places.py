"""Where in a function a planted bug is: by what stands there, not by its text.

A place is the only node of its kind in the function, or the one with a number. Then the place also says how many of
that kind there are, so that a bug does not move to a neighbour when one comes or goes:

- `call("release")`: the only call of something with that name, be it a function, a method or a class
- `condition(2, of=3)`: what the second of three `if`, `elif` and `while` asks
- `assignment()`, `increment()`: the only statement with `=`; with `+=` or `-=`
- `returned()`: what the only `return` gives back
- `deletion()`, `comparison()`, `operation()`, `choice()`, `subscript()`: the only `del a`, `a < b`, `a + b`,
  `a if b else c`, `a[b]`

They are counted from 1 in the order in which they are read, and so are their parts: `condition().operand(2)`,
`call("max").argument(1)`, `assignment().value`. Names of variables and attributes do not occur, so a place outlives
their renaming, and any new layout.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a function, to be found in its tree."""

    kind: str
    fits: Callable[[ast.AST], ast.AST | None]
    number: int
    of: int
    steps: tuple[tuple[str, int], ...] = ()

    def argument(self, number: int) -> Place:
        """Of a call, by its position."""
        return self._part("argument", number)

    def keyword(self, number: int) -> Place:
        """A named argument of a call."""
        return self._part("keyword", number)

    def operand(self, number: int) -> Place:
        """Of `and`, `or`, `not`, a comparison or an operation."""
        return self._part("operand", number)

    def element(self, number: int) -> Place:
        """Of a tuple, a list or a comprehension."""
        return self._part("element", number)

    @property
    def value(self) -> Place:
        """What is assigned."""
        return self._part("value")

    @property
    def target(self) -> Place:
        """What it is assigned to."""
        return self._part("target")

    @property
    def object(self) -> Place:
        """Whose method is called, whose attribute or element is read."""
        return self._part("object")

    @property
    def index(self) -> Place:
        """What stands between the brackets."""
        return self._part("index")

    @property
    def iterable(self) -> Place:
        """What a comprehension goes through."""
        return self._part("iterable")

    @property
    def filter(self) -> Place:
        """What a comprehension asks of each element."""
        return self._part("filter")

    @property
    def condition(self) -> Place:
        """What `a if b else c` asks."""
        return self._part("condition")

    @property
    def then(self) -> Place:
        """The first value of `a if b else c`."""
        return self._part("then")

    @property
    def otherwise(self) -> Place:
        """The last value of `a if b else c`."""
        return self._part("otherwise")

    def _part(self, name: str, number: int = 1) -> Place:
        return replace(self, steps=(*self.steps, (name, number)))

    def find(self, function: ast.AST) -> ast.AST:
        """Raises AssertionError if it is not there, or if there are more or fewer of its kind than there were."""
        found = sorted((fit for node in ast.walk(function) if (fit := self.fits(node)) is not None), key=_position)
        seen = "".join(f"\n  {number}. {ast.unparse(each)}" for number, each in enumerate(found, 1))
        assert len(found) == self.of, f"{self.kind}: {len(found)} in the function, not {self.of}; which is it?{seen}"
        node = found[self.number - 1]
        for name, number in self.steps:
            parts = _PARTS[name](node)
            assert number <= len(parts), f"{ast.unparse(node)!r} has no {name} {number}"
            node = parts[number - 1]
        return node


def _position(node: ast.AST) -> tuple[int, int, int, int]:
    """In reading order; of what begins at the same place the longest first."""
    assert isinstance(node, ast.expr | ast.stmt)
    end = node.end_lineno or 0, node.end_col_offset or 0
    return node.lineno, node.col_offset, -end[0], -end[1]


def _operands(node: Any) -> list[ast.AST]:
    match node:
        case ast.BoolOp():
            return [*node.values]
        case ast.BinOp():
            return [node.left, node.right]
        case ast.Compare():
            return [node.left, *node.comparators]
        case ast.UnaryOp():
            return [node.operand]
    return []


def _object(node: Any) -> list[ast.AST]:
    return _fields(node.func if isinstance(node, ast.Call) else node, "value")


def _fields(node: Any, *names: str) -> list[ast.AST]:
    """The nodes in those fields, as far as the node has them."""
    found: list[ast.AST] = []
    for name in names:
        value = getattr(node, name, None)
        found += value if isinstance(value, list) else [value] if value is not None else []
    return found


_PARTS: Final[dict[str, Callable[[Any], list[ast.AST]]]] = {
    "argument": lambda node: _fields(node, "args"),
    "keyword": lambda node: [part for each in _fields(node, "keywords") for part in _fields(each, "value")],
    "operand": _operands,
    "element": lambda node: _fields(node, "elts", "elt"),
    "value": lambda node: _fields(node, "value"),
    "target": lambda node: _fields(node, "targets", "target"),
    "object": _object,
    "index": lambda node: _fields(node, "slice"),
    "iterable": lambda node: [part for each in _fields(node, "generators") for part in _fields(each, "iter")],
    "filter": lambda node: [test for each in _fields(node, "generators") for test in _fields(each, "ifs")],
    "condition": lambda node: _fields(node, "test"),
    "then": lambda node: _fields(node, "body"),
    "otherwise": lambda node: _fields(node, "orelse"),
}


def call(name: str, number: int = 1, of: int = 1) -> Place:
    def fits(node: ast.AST) -> ast.AST | None:
        return node if isinstance(node, ast.Call) and name_called(node) == name else None

    return Place(f"calls of {name!r}", fits, number, of)


def name_called(node: ast.Call) -> str | None:
    """Its last part: `recycle` of `self._pool.recycle()`."""
    return getattr(node.func, "attr", getattr(node.func, "id", None))


def condition(number: int = 1, of: int = 1) -> Place:
    def fits(node: ast.AST) -> ast.AST | None:
        return node.test if isinstance(node, ast.If | ast.While) else None

    return Place("'if', 'elif' or 'while'", fits, number, of)


def returned(number: int = 1, of: int = 1) -> Place:
    return Place("'return' with a value", lambda node: node.value if isinstance(node, ast.Return) else None, number, of)


def assignment(number: int = 1, of: int = 1) -> Place:
    return _node("'='", ast.Assign | ast.AnnAssign, number, of)


def increment(number: int = 1, of: int = 1) -> Place:
    return _node("'+=' or '-='", ast.AugAssign, number, of)


def deletion(number: int = 1, of: int = 1) -> Place:
    return _node("'del'", ast.Delete, number, of)


def comparison(number: int = 1, of: int = 1) -> Place:
    return _node("comparisons", ast.Compare, number, of)


def operation(number: int = 1, of: int = 1) -> Place:
    return _node("operations like 'a + b'", ast.BinOp, number, of)


def choice(number: int = 1, of: int = 1) -> Place:
    return _node("choices like 'a if b else c'", ast.IfExp, number, of)


def subscript(number: int = 1, of: int = 1) -> Place:
    return _node("subscripts", ast.Subscript, number, of)


def _node(kind: str, types: Any, number: int, of: int) -> Place:
    return Place(kind, lambda node: node if isinstance(node, types) else None, number, of)
