"""Warns of functions that change a variable of the program, but run in other processes, on copies of the variable.

Without the warning, such a change would be lost silently. Changes are:

- a change of a list, dict, set or array in a variable;
- a new value for a variable;
- a change of an attribute of an object in a variable.

The search covers the user's function, the methods that it calls, and the functions of its module that it calls. See
`headgate.api.changed_places`.

A process may also build an object for its own use. Therefore a variable that is None before the job, and a name that
begins with an underscore, cause no warning. An object that only the user's function has causes no warning either: the
program cannot read such an object after the job.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from headgate.api.changed_places import Walk, is_changing_function, of_argument, of_bound_method
from headgate.api.program_objects import Place, place_of, place_of_cell
from headgate.errors import LostChangeWarning
from headgate.operators.keyed.process_function import KeyedFunction
from headgate.plan.graph import Node, StreamGraph

#: The methods that a job calls on a function with state.
_HOOKS: Final = ("open", "process", "process_element", "on_timer", "close")


def warn_of_lost_changes(graph: StreamGraph) -> None:
    """Issue one warning for each pair of function and variable. Its place is the line of the program that runs the
    job."""
    for node in graph.nodes:
        for function in _functions(node):
            for name, variable, kind in sorted(changes(function)):
                warnings.warn(
                    f"{node.name}: {name} changes the {kind} {variable!r} of this program, but it runs in other "
                    f"processes, on copies: {variable!r} of this process keeps its value. To get rows back, use "
                    "collect(). To run the function in this process, use "
                    "StreamEnvironment(deployment=hg.LocalDeployment(processes=False)). If each process may have a "
                    f"{variable!r} of its own, ignore hg.LostChangeWarning.",
                    LostChangeWarning,
                    stacklevel=_level_of_program(),
                )


def _functions(node: Node) -> Iterator[Any]:
    """Yield the user's functions that run in tasks of this node."""
    for end in (node.source, node.sink):
        if end is not None:
            yield from end.task_functions
    if isinstance(node.operator, functools.partial):
        yield from node.operator.args
    yield from (edge.partitioning.function for edge in node.inputs)


def changes(function: Any) -> set[tuple[str, str, str]]:
    """Return the variables of the program that a function changes, as far as the function's code shows.

    Each result is a triple: the name of the changing function, the name of the variable, and the type of its value.
    """
    search = _Search()
    search.at(function)
    return search.changes


class _Search:
    """A search through a function and all functions that it calls. The search visits each function once."""

    def __init__(self) -> None:
        self.changes: set[tuple[str, str, str]] = set()
        self._visited: set[tuple[int, int]] = set()

    def at(self, function: Any) -> None:
        """Search a user's function: a function, method, partial, process function or other callable."""
        given: dict[str, Any] = {}
        if isinstance(function, functools.partial):
            if function.args and is_changing_function(function.func):
                self._add(function.func, of_argument(function.args[0]))
            given = _given_by_partial(function)
            function = function.func
        if place := of_bound_method(function):
            self._add(function, place)
        elif isinstance(function, MethodType):
            self._at_method(function.__func__, place_of(function.__self__))
        elif isinstance(function, KeyedFunction):
            self._at_methods(function, *_HOOKS)
        elif isinstance(function, FunctionType):
            self._at_function(function, None, {**_defaults(function), **given})
        elif callable(function):
            self._at_methods(function, "__call__")

    def _add(self, function: Any, place: Place | None) -> None:
        if place is not None:
            self.changes.add((function.__qualname__, place.name, place.kind))

    def _at_methods(self, thing: object, *names: str) -> None:
        owner = place_of(thing)
        for name in names:
            self._at_method(inspect.getattr_static(thing, name, None), owner)

    def _at_method(self, method: object, owner: Place) -> None:
        if isinstance(method, FunctionType) and method.__module__.partition(".")[0] != "headgate":
            self._at_function(method, owner)

    def _at_function(self, function: FunctionType, owner: Place | None, given: Mapping[str, Any] | None = None) -> None:
        """Search a function, or a method of `owner`. `given` are arguments that it always gets."""
        key = (id(function), id(owner and owner.value))
        if key in self._visited:
            return
        self._visited.add(key)
        cells = _cells(function)
        places = {name: of_argument(value) for name, value in (given or {}).items()}
        walk = Walk(function, cells, owner, {name: place for name, place in places.items() if place is not None})
        for place in walk.changed:
            self._add(function, place)
        for helper, its_object in _helpers(function, cells):
            self._at_function(helper, its_object)
        for method, its_object in walk.called:
            self._at_function(method, its_object)


def _cells(function: FunctionType) -> dict[str, Place]:
    """Return the variables of outer functions that the function uses, by name."""
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            cells[name] = place_of_cell(name, cell.cell_contents)
        except ValueError:  # the variable is not yet bound
            continue
    return cells


def _defaults(function: FunctionType) -> dict[str, Any]:
    """Return the defaults of a user's function by parameter. Headgate never passes arguments for these parameters."""
    defaults = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    return {**dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True)),
            **(function.__kwdefaults__ or {})}  # fmt: skip


def _given_by_partial(function: functools.partial[Any]) -> dict[str, Any]:
    """Return the arguments that a partial holds, by the names of its function's parameters."""
    code = getattr(function.func, "__code__", None)
    positional = () if code is None else code.co_varnames[: code.co_argcount]
    return {**dict(zip(positional, function.args, strict=False)), **function.keywords}


def _helpers(function: FunctionType, cells: dict[str, Place]) -> Iterator[tuple[FunctionType, Place | None]]:
    """Yield the functions and bound methods of the same module that the function may call, with the methods'
    objects."""
    named = (function.__globals__.get(name) for code in _codes(function.__code__) for name in code.co_names)
    for value in (*named, *(place.value for place in cells.values())):
        method = value.__func__ if isinstance(value, MethodType) else value
        if isinstance(method, FunctionType) and method.__module__ == function.__module__:
            yield method, place_of(value.__self__) if isinstance(value, MethodType) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and the code of its inner functions, lambdas and comprehensions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _level_of_program() -> int:
    """Return the `stacklevel` with which the caller's `warnings.warn` shows the first frame outside of Headgate."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        level, frame = level + 1, frame.f_back
    return level
