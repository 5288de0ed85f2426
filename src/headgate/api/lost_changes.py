"""Functions that change a list, dict or set of the program, and would change a copy of it in another process.

Such a change is lost without an error, so it draws a warning. The functions' bytecode is read, never run: what it loads
is followed over an abstract stack, in which a place holds the name of the variable that it came from, or nothing. This
finds `seen.append(x)`, `seen[key] = x`, `del seen[key]`, `seen[key].append(x)`, `seen += [x]` and the like, also in
lambdas and functions within it and in functions of the same module that it calls. It misses a variable under a second
name.
"""

from __future__ import annotations

import dis
import functools
import sys
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

from headgate.errors import LostChangeWarning
from headgate.operators.process_function import KeyedProcessFunction
from headgate.plan.graph import Node, StreamGraph

_CONTAINERS: Final = (list, dict, set, deque, bytearray)
_CHANGING: Final = {
    *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "insert"),
    *("intersection_update", "move_to_end", "pop", "popitem", "popleft", "remove", "reverse", "rotate", "setdefault"),
    *("sort", "subtract", "symmetric_difference_update", "update"),
}
#: How far down the stack the container is, for instructions that change one.
_STORES: Final = {"STORE_SUBSCR": 2, "DELETE_SUBSCR": 2, "STORE_SLICE": 3}
#: Whether the name is that of a variable of a function around it, or else of the module.
_LOADS: Final = {"LOAD_GLOBAL": False, "LOAD_DEREF": True}
_REBINDS: Final = {"STORE_GLOBAL": False, "STORE_DEREF": True}
#: Instructions that leave what is on top of the stack as it is.
_NEUTRAL: Final = ("POP_", "STORE_", "DELETE_", "NOP", "RESUME", "EXTENDED_ARG", "KW_NAMES", "JUMP", "NOT_TAKEN")
#: Instructions that the next one does not follow.
_ENDS: Final = {
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
    *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"),
}


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
    """Which containers of the program a function changes, as far as its code tells: the function's name, the variable's
    name and its type."""
    found: set[tuple[str, str, str]] = set()
    _look_at(function, found, set())
    return found


def _look_at(function: Any, found: set[tuple[str, str, str]], seen: set[int]) -> None:
    if isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, KeyedProcessFunction):
        for method in vars(type(function)).values():
            _look_at(method, found, seen)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    variables = _Variables(function)
    for name in _Walk(function.__code__, variables.globals, variables.cells).changed():
        found.add((function.__qualname__, *name))
    for helper in variables.helpers():
        _look_at(helper, found, seen)


class _Variables:
    """What the names in a function stand for: globals by name, and the variables of the functions around it."""

    def __init__(self, function: FunctionType) -> None:
        self._module = function.__module__
        self._code = function.__code__
        self.globals: Mapping[str, Any] = function.__globals__
        self.cells: dict[str, Any] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.cells[name] = cell.cell_contents
            except ValueError:  # not yet bound
                continue

    def helpers(self) -> Iterator[FunctionType]:
        """Functions of the same module that it may call."""
        named = (self.globals.get(name) for code in _codes(self._code) for name in code.co_names)
        for value in (*named, *self.cells.values()):
            if isinstance(value, FunctionType) and value.__module__ == self._module:
                yield value


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions, lambdas and comprehensions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class _Walk:
    """Follows the instructions of one code object from the first to the last."""

    def __init__(self, code: CodeType, module: Mapping[str, Any], cells: Mapping[str, Any]) -> None:
        self._code = code
        self._globals = module
        self._cells = cells
        #: The variable that each value on the stack was taken from, if it is a container of the program.
        self._stack: list[tuple[str, str] | None] = []
        self._at_targets: dict[int, list[tuple[str, str] | None]] = {}

    def changed(self) -> Iterator[tuple[str, str]]:
        """Names and types of the containers that are changed."""
        for instruction in dis.get_instructions(self._code):
            if instruction.is_jump_target:
                self._stack = self._at_targets.pop(instruction.offset, self._stack)
            changed = self._changed_by(instruction)
            if changed is not None:
                yield changed
            self._step(instruction)
        inner = {name: value for name, value in self._cells.items() if name not in self._code.co_cellvars}
        for constant in self._code.co_consts:
            if isinstance(constant, CodeType):
                yield from _Walk(constant, self._globals, inner).changed()

    def _changed_by(self, instruction: dis.Instruction) -> tuple[str, str] | None:
        name = instruction.opname
        if name in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in _CHANGING:
            return self._top(1)
        if name in _STORES:
            return self._top(_STORES[name])
        if name == "BINARY_OP" and instruction.argrepr.endswith("="):
            return self._top(2)
        return self._variable(instruction.argval, _REBINDS[name]) if name in _REBINDS else None

    def _step(self, instruction: dis.Instruction) -> None:
        """What the instruction does to the stack."""
        name, stack = instruction.opname, self._stack
        argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            effect = dis.stack_effect(instruction.opcode, argument, jump=True)
            self._at_targets.setdefault(instruction.argval, stack[:effect] if effect < 0 else stack + [None] * effect)
        effect = dis.stack_effect(instruction.opcode, argument, jump=False)
        if name in _LOADS:
            stack += [None] * (effect - 1) + [self._variable(instruction.argval, _LOADS[name])]
        elif name == "COPY":
            stack.append(self._top(instruction.arg or 1))
        elif name == "SWAP" and len(stack) >= (depth := instruction.arg or 1):
            stack[-1], stack[-depth] = stack[-depth], stack[-1]
        else:
            container = self._top(2) if name == "BINARY_SUBSCR" or instruction.argrepr == "[]" else None
            del stack[len(stack) + min(effect, 0) :]
            if effect <= 0 and stack and not name.startswith(_NEUTRAL):
                stack[-1] = container
            stack += [None] * effect
        if name in _ENDS:
            self._stack = []

    def _top(self, depth: int) -> tuple[str, str] | None:
        return self._stack[-depth] if len(self._stack) >= depth else None

    def _variable(self, name: str, is_cell: bool) -> tuple[str, str] | None:
        value = (self._cells if is_cell else self._globals).get(name)
        return (name, type(value).__name__) if isinstance(value, _CONTAINERS) else None


def _level_of_program() -> int:
    """For `warnings.warn` in the caller: how far up the first frame is that is not Headgate's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        level, frame = level + 1, frame.f_back
    return level
