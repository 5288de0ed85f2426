"""What a planted bug does to its place in a function (places.py). An edit takes the function's tree and changes it.

- `dropped(place)`: a statement becomes `pass`; an operand, an argument or an element is left out
- `always(place)`, `never(place)`, `constant(place, 1)`: an expression becomes True, False, or what is given
- `only(place)`: of the expression around it only this is left; with `of`, of that expression
- `plus(place, -1)`: an expression has one less
- `compared(place, "<=")`: a comparison has another sign; of two signs, `at` says which
- `calling(place, "max")`: something else is called
- `replaced(place, "THIS and not self._markers")`: that Python stands there, and THIS is what was there. It is for what
  no other edit says
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from tests.memory.places import Place

Edit = Callable[[ast.AST], None]

_SIGNS: Final[dict[str, type[ast.cmpop]]] = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, "is": ast.Is}


def dropped(place: Place) -> Edit:
    def edit(function: ast.AST) -> None:
        node = place.find(function)
        around = _around(function, node)
        match around:
            case ast.Expr():
                _swap(function, around, ast.Pass())
            case ast.BoolOp(values=[first, last]) | ast.BinOp(left=first, right=last):
                _swap(function, around, last if node is first else first)
            case ast.BoolOp(values=several) | ast.Call(args=several) | ast.List(elts=several) if node in several:
                several.remove(node)
            case _:
                assert isinstance(node, ast.stmt), (
                    f"{ast.unparse(node)!r} cannot be dropped from {ast.unparse(around)!r}"
                )
                _swap(function, node, ast.Pass())

    return edit


def always(place: Place) -> Edit:
    return constant(place, True)


def never(place: Place) -> Edit:
    return constant(place, False)


def constant(place: Place, value: bool | int | bytes | None) -> Edit:
    return lambda function: _swap(function, place.find(function), ast.Constant(value))


def only(place: Place, *, of: Place | None = None) -> Edit:
    def edit(function: ast.AST) -> None:
        node = place.find(function)
        _swap(function, of.find(function) if of is not None else _around(function, node, whole_call=True), node)

    return edit


def plus(place: Place, number: int) -> Edit:
    def edit(function: ast.AST) -> None:
        node: Any = place.find(function)
        sign = ast.Add() if number > 0 else ast.Sub()
        _swap(function, node, ast.BinOp(node, sign, ast.Constant(abs(number))))

    return edit


def compared(place: Place, sign: str, at: int = 1) -> Edit:
    def edit(function: ast.AST) -> None:
        node = place.find(function)
        assert isinstance(node, ast.Compare), f"{ast.unparse(node)!r} is no comparison"
        node.ops[at - 1] = _SIGNS[sign]()

    return edit


def calling(place: Place, name: str) -> Edit:
    def edit(function: ast.AST) -> None:
        match place.find(function):
            case ast.Call(func=ast.Attribute() as called):
                called.attr = name
            case ast.Call(func=ast.Name() as called):
                called.id = name
            case other:
                raise AssertionError(f"{ast.unparse(other)!r} is no call")

    return edit


def replaced(place: Place, python: str) -> Edit:
    def edit(function: ast.AST) -> None:
        node, written = place.find(function), ast.parse(python)
        around = _around(function, node)
        whole = around if isinstance(around, ast.Expr) else node
        for this in [each for each in ast.walk(written) if isinstance(each, ast.Name) and each.id == "THIS"]:
            _swap(written, _around(written, this) if isinstance(node, ast.stmt) else this, node)
        if isinstance(whole, ast.stmt):
            _swap(function, whole, *written.body)
        else:
            _swap(function, node, *map(_expression, written.body))

    return edit


def _expression(statement: ast.stmt) -> ast.expr:
    assert isinstance(statement, ast.Expr), f"{ast.unparse(statement)!r} cannot stand in an expression"
    return statement.value


def _around(function: ast.AST, node: ast.AST, *, whole_call: bool = False) -> ast.AST:
    """What the node is a part of; `whole_call`: of a method that is called, the call."""
    for each in ast.walk(function):
        if any(child is node for child in ast.iter_child_nodes(each)):
            is_method = whole_call and isinstance(each, ast.Attribute)
            return _around(function, each) if is_method else each
    raise AssertionError(f"{ast.unparse(node)!r} is the whole")


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: list[Any]) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        if node is not self._old:
            return self.generic_visit(node)
        return self._new if len(self._new) > 1 else self._new[0]


def _swap(tree: ast.AST, old: ast.AST, *new: ast.AST) -> None:
    context = getattr(old, "ctx", None)
    for each in new:
        if context is not None and hasattr(each, "ctx"):  # it may be assigned to
            each.ctx = context
    _Swap(old, list(new)).visit(tree)
