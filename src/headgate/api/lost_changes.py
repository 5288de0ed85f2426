"""Functions that change a variable of the program, and would change a copy of it in another process.

Such a change is lost without an error, so it draws a warning. A variable is a list, dict, set or array that is changed,
or a name that is rebound; also an attribute of an object that a variable holds. Looked at is the job's function with
the functions of the same module and the methods that it calls (see `headgate.api.changed_places`).

A process may also build what it needs for itself. So there is no warning for what is None before, or begins with an
underscore, nor for an object that nothing but the job's function has: the program could not read it afterwards.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from headgate.api.changed_places import Walk
from headgate.api.program_objects import Place, place_of, place_of_cell
from headgate.errors import LostChangeWarning
from headgate.operators.keyed.process_function import KeyedProcessFunction
from headgate.plan.graph import Node, StreamGraph

#: The methods of a KeyedProcessFunction that a job calls.
_HOOKS: Final = ("open", "process", "process_element", "on_timer", "close")


def warn_of_lost_changes(graph: StreamGraph) -> None:
    """One warning for each function and variable, at the line of the program that runs the job."""
    for node in graph.nodes:
        for function in _functions(node):
            for name, variable, kind in sorted(changes(function)):
                warnings.warn(
                    f"{node.name}: {name} changes the {kind} {variable!r} of this program, but it runs in other "
                    f"processes, on copies: {variable!r} stays as it is here. To get rows back, use collect(). To run "
                    "the function in this process, use StreamEnvironment(deployment=hg.LocalDeployment("
                    f"processes=False)). If each process may have a {variable!r} of its own, ignore "
                    "hg.LostChangeWarning.",
                    LostChangeWarning,
                    stacklevel=_level_of_program(),
                )


def _functions(node: Node) -> Iterator[Any]:
    """The user's functions that run in tasks of this node."""
    for end in (node.source, node.sink):
        if end is not None:
            yield from end.task_functions
    if isinstance(node.operator, functools.partial):
        yield from node.operator.args
    yield from (edge.partitioning.function for edge in node.inputs)


def changes(function: Any) -> set[tuple[str, str, str]]:
    """Which variables of the program a function changes, as far as its code tells: the function's name, the variable's
    name and the type of its value."""
    look = _Look()
    look.at(function)
    return look.found


class _Look:
    """Looks at a function and at all that it calls, at each once."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str, str]] = set()
        self._seen: set[tuple[int, int]] = set()

    def at(self, function: Any) -> None:
        """A user's function, in any of the ways in which it can be given."""
        if isinstance(function, functools.partial):
            function = function.func
        if isinstance(function, MethodType):
            self._at_method(function.__func__, place_of(function.__self__))
        elif isinstance(function, KeyedProcessFunction):
            self._at_methods(function, *_HOOKS)
        elif isinstance(function, FunctionType):
            self._at_function(function, None)
        elif callable(function):
            self._at_methods(function, "__call__")

    def _at_methods(self, thing: object, *names: str) -> None:
        owner = place_of(thing)
        for name in names:
            self._at_method(inspect.getattr_static(thing, name, None), owner)

    def _at_method(self, method: object, owner: Place) -> None:
        if isinstance(method, FunctionType) and method.__module__.partition(".")[0] != "headgate":
            self._at_function(method, owner)

    def _at_function(self, function: FunctionType, owner: Place | None) -> None:
        """A function, or a method of `owner`."""
        key = (id(function), id(owner and owner.value))
        if key in self._seen:
            return
        self._seen.add(key)
        cells = _cells(function)
        walk = Walk(function, cells, owner)
        self.found |= {(function.__qualname__, place.name, place.kind) for place in walk.changed}
        for helper in _helpers(function, cells):
            self._at_function(helper, None)
        for method, its in walk.called:
            self._at_function(method, its)


def _cells(function: FunctionType) -> dict[str, Place]:
    """The variables of the functions around it."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = place_of_cell(name, cell.cell_contents)
        except ValueError:  # not yet bound
            continue
    return found


def _helpers(function: FunctionType, cells: dict[str, Place]) -> Iterator[FunctionType]:
    """Functions of the same module that it may call."""
    named = (function.__globals__.get(name) for code in _codes(function.__code__) for name in code.co_names)
    for value in (*named, *(place.value for place in cells.values())):
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions, lambdas and comprehensions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _level_of_program() -> int:
    """For `warnings.warn` in the caller: how far up the first frame is that is not Headgate's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        level, frame = level + 1, frame.f_back
    return level
